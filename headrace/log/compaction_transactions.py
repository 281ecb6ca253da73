"""Transactions seen by a cleaner on its way through a log, as Kafka's cleaner sees them.

Records of an aborted transaction go. Its marker, and that of a committed one, stays until no
batch of the transaction is left before it.
"""

from collections.abc import Iterable

from headrace.log.txn_index import AbortedTxn
from headrace.protocol.records import BatchView, end_marker


class Transactions:
    """Told every batch in order; `kept_aborted` are the entries of the new .txnindex."""

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        # Latest first, so that the next one to start is at the end.
        self._to_start = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._aborting: dict[int, AbortedTxn] = {}
        # Of the aborted and of the committed ones: producers that have a batch left.
        self._seen_aborted: set[int] = set()
        self._seen_committed: set[int] = set()
        self.kept_aborted: list[AbortedTxn] = []

    def aborts(self, batch: BatchView) -> bool:
        """Whether the records of a batch were taken back."""
        self._start_up_to(batch.last_offset)
        if not batch.is_transactional:
            return False
        if batch.producer_id in self._aborting:
            self._seen_aborted.add(batch.producer_id)
            return True
        self._seen_committed.add(batch.producer_id)
        return False

    def outlived(self, batch: BatchView) -> bool:
        """Whether a control batch ends a transaction of which nothing is left."""
        self._start_up_to(batch.last_offset)
        if not batch.record_count:
            # It was emptied by an earlier cleaning.
            return True
        marker = end_marker(batch)
        if marker is None:
            return False
        producer_id = batch.producer_id
        if marker.commit:
            left = producer_id in self._seen_committed
            self._seen_committed.discard(producer_id)
            return not left
        entry = self._aborting.pop(producer_id, None)
        left = producer_id in self._seen_aborted
        self._seen_aborted.discard(producer_id)
        if entry is None or not left:
            return True
        self.kept_aborted.append(entry)
        return False

    def _start_up_to(self, offset: int) -> None:
        waiting = self._to_start
        while waiting and waiting[-1].first_offset <= offset:
            entry = waiting.pop()
            self._aborting.setdefault(entry.producer_id, entry)
