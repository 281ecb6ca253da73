"""Random histories with transactions, tombstones and restarts, held to a dictionary."""

import uuid

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from headrace.log.compaction_plan import Limits
from headrace.log.origin import Origin
from headrace.log.store import Store
from headrace.protocol.records import control_batch
from headrace.testing.clock import ManualClock
from headrace.testing.compaction import compact, keyed, latest, settle
from headrace.testing.filesystems import MemoryFilesystem, everything, nothing, some
from headrace.testing.logs import NOW_MS, read_all, small_segments, sync

RETENTION_MS = 1_000
SETTINGS = small_segments(
    900,
    cleanup_policy=("compact",),
    index_interval_bytes=150,
    delete_retention_ms=RETENTION_MS,
)
keys = st.sampled_from([b"a", b"b", b"c", b"k" * 70, b"k" * 71])
pairs = st.lists(st.tuples(keys, st.none() | st.binary(max_size=30)), min_size=1, max_size=6)
producers = st.integers(1, 3)


class Histories(RuleBasedStateMachine):
    """A log that is compacted now and then tells every reader what it told before."""

    def __init__(self):
        super().__init__()
        self.filesystem = MemoryFilesystem()
        self.now_ms = NOW_MS
        # Everything ever written: offset, key, value, and the producer of a transaction.
        self.written = []
        self.open = {}
        self.aborted = set()
        self.epochs = {}
        self.sequences = {}

    @initialize()
    def start(self):
        self.store = Store(self.filesystem, "/data", ManualClock(NOW_MS))
        self.log = self.store.create("accounts", 0, uuid.UUID(int=1), SETTINGS)

    def note(self, base_offset, rows, producer=None):
        for at, (key, value) in enumerate(rows):
            self.written.append((base_offset + at, key, value))
            if producer is not None:
                self.open.setdefault(producer, []).append(base_offset + at)

    @rule(rows=pairs, codec=st.integers(0, 4))
    def write(self, rows, codec):
        self.note(self.log.append(keyed(*rows, compression=codec)).base_offset, rows)

    @rule(rows=pairs, producer=producers)
    def write_in_transaction(self, rows, producer):
        sequence = self.sequences.get(producer, 0)
        appended = self.log.append(
            keyed(
                *rows,
                producer_id=producer,
                producer_epoch=self.epochs.get(producer, 0),
                base_sequence=sequence,
                transactional=True,
            )
        )
        self.sequences[producer] = sequence + len(rows)
        self.note(appended.base_offset, rows, producer)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), commit=st.booleans(), bump=st.booleans())
    def end_transaction(self, data, commit, bump):
        producer = data.draw(st.sampled_from(sorted(self.open)))
        if bump:
            self.epochs[producer] = self.epochs.get(producer, 0) + 1
            self.sequences[producer] = 0
        self.log.append(
            control_batch(
                producer,
                self.epochs.get(producer, 0),
                commit=commit,
                coordinator_epoch=0,
                timestamp=self.now_ms,
            ),
            origin=Origin.COORDINATOR,
        )
        offsets = self.open.pop(producer)
        if not commit:
            self.aborted.update(offsets)

    @rule(key_bytes=st.sampled_from([256 * 3, 1 << 20]))
    def clean(self, key_bytes):
        settle(self.store, self.log)
        compact(
            self.store, self.log, now_ms=self.now_ms, limits=Limits(key_bytes, 400, float("inf"))
        )
        self.store.sweep()

    @rule()
    def wait(self):
        self.now_ms += RETENTION_MS

    @rule(clean=st.booleans())
    def restart(self, clean):
        if not clean:
            sync(self.log)
        before = self.producer_state()
        self.store.close(clean=clean)
        self.store = Store(self.filesystem, "/data", ManualClock(NOW_MS))
        self.log = self.store.open("accounts", 0, None, SETTINGS)
        assert self.producer_state() == before

    @rule(seed=st.integers(0, 100))
    def lose_power(self, seed):
        sync(self.log)
        before = self.producer_state()
        keep = {0: nothing, 1: everything}.get(seed, some(seed))
        self.filesystem = self.filesystem.survivors(keep)
        self.store = Store(self.filesystem, "/data", ManualClock(NOW_MS))
        self.log = self.store.open("accounts", 0, None, SETTINGS)
        assert self.producer_state() == before

    def producer_state(self):
        # Of the batches that a retry could repeat, compaction promises to keep the last.
        return {
            producer_id: (state.epoch, state.last_sequence, state.in_transaction)
            for producer_id, state in self.log.producers.active_producers()
        }

    def committed(self, *, uncommitted=frozenset()):
        return [row for row in self.written if row[0] not in self.aborted | uncommitted]

    def read(self):
        """The records of the log as a read-committed reader gets them, open ones left out."""
        end = self.log.log_end_offset
        aborted = self.log.aborted(0, end)
        opened = {offset for offsets in self.open.values() for offset in offsets}
        rows = []
        for view in read_all(self.log):
            if view.is_control:
                continue
            taken_back = view.is_transactional and any(
                entry.producer_id == view.producer_id
                and entry.first_offset <= view.base_offset <= entry.last_offset
                for entry in aborted
            )
            if not taken_back:
                rows += [
                    (record.offset, record.key, record.value)
                    for record in view.records()
                    if record.offset not in opened
                ]
        return rows

    @invariant()
    def readers_learn_what_was_written(self):
        if not hasattr(self, "log"):
            return
        opened = {offset for offsets in self.open.values() for offset in offsets}
        found = self.read()
        assert latest(found) == latest(self.committed(uncommitted=opened))
        assert set(found) <= set(self.committed()), "no record changed or was made up"
        offsets = [view.base_offset for view in read_all(self.log)]
        assert offsets == sorted(offsets)


Histories.TestCase.settings = hypothesis_settings(max_examples=60, stateful_step_count=40)
TestHistories = Histories.TestCase
