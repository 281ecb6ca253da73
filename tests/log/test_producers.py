import struct

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import ErrorCode, KafkaError
from headrace.log.origin import Origin
from headrace.log.producers import KEPT_BATCHES, SEQUENCE_MAX, Duplicate, Producers
from headrace.log.txn_index import AbortedTxn
from headrace.protocol.records import BatchView, Record, control_batch, write_batch


def data(
    producer_id=1, sequence=0, *, epoch=0, count=1, transactional=False, offset=0, timestamp=1000
):
    batch = write_batch(
        [Record(timestamp=timestamp, value=b"v") for _ in range(count)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    view = BatchView(batch)
    view.stamp(offset, 0)
    return view


def marker(producer_id=1, *, epoch=0, commit=True, coordinator_epoch=0, offset=0, timestamp=1000):
    batch = control_batch(
        producer_id,
        epoch,
        commit=commit,
        coordinator_epoch=coordinator_epoch,
        timestamp=timestamp,
    )
    view = BatchView(batch)
    view.stamp(offset, 0)
    return view


def wrote(*batches: BatchView) -> Producers:
    producers = Producers()
    for batch in batches:
        producers.update(batch)
    return producers


def refusal(producers, batch, origin=Origin.CLIENT, **options):
    with pytest.raises(KafkaError) as error:
        producers.check(batch, origin=origin, **options)
    return error.value.code


def taken(producers, batch, origin=Origin.CLIENT, **options):
    return producers.check(batch, origin=origin, **options) is None


def test_a_batch_of_no_producer_is_always_taken_and_not_remembered():
    batch = BatchView(write_batch([Record(value=b"v")]))
    producers = wrote(batch)
    assert taken(producers, batch)
    assert len(producers) == 0


def test_an_unknown_producer_may_start_anywhere_as_in_kafka_after_retention():
    assert taken(Producers(), data(sequence=77))


def test_the_next_sequence_is_taken_and_a_gap_is_not():
    producers = wrote(data(sequence=0, count=3))
    assert taken(producers, data(sequence=3))
    assert refusal(producers, data(sequence=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_go_on_at_zero_after_the_last():
    producers = wrote(data(sequence=SEQUENCE_MAX - 1, count=2))
    assert taken(producers, data(sequence=0))
    producers = wrote(data(sequence=SEQUENCE_MAX - 1, count=4, offset=10))
    assert taken(producers, data(sequence=2))
    again = producers.check(data(sequence=SEQUENCE_MAX - 1, count=4), origin=Origin.CLIENT)
    assert again == Duplicate(10, 13, 1000)


def test_a_retry_of_any_of_the_last_five_batches_is_answered_with_its_first_place():
    producers = wrote(*(data(sequence=n * 2, count=2, offset=100 + n * 2) for n in range(6)))
    for n in range(6 - KEPT_BATCHES, 6):
        found = producers.check(data(sequence=n * 2, count=2), origin=Origin.CLIENT)
        assert found == Duplicate(100 + n * 2, 101 + n * 2, 1000)
    code = refusal(producers, data(sequence=0, count=2))
    assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_that_only_overlaps_a_written_one_is_no_duplicate():
    producers = wrote(data(sequence=0, count=4))
    code = refusal(producers, data(sequence=0, count=3))
    assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_fenced_even_for_a_batch_it_wrote():
    producers = wrote(data(epoch=1), data(epoch=2, offset=1))
    assert refusal(producers, data(epoch=1)) is ErrorCode.INVALID_PRODUCER_EPOCH
    code = refusal(producers, data(epoch=1), origin=Origin.COORDINATOR)
    assert code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_new_epoch_starts_at_zero():
    producers = wrote(data(epoch=0, sequence=0))
    assert refusal(producers, data(epoch=1, sequence=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert taken(producers, data(epoch=1, sequence=0))


def test_a_coordinators_batches_have_no_sequence_to_check():
    producers = wrote(data(sequence=5))
    assert taken(producers, data(sequence=99), origin=Origin.COORDINATOR)


def test_a_producer_in_a_transaction_writes_in_it_only():
    producers = wrote(data(transactional=True))
    assert refusal(producers, data(sequence=1)) is ErrorCode.INVALID_TXN_STATE
    assert taken(producers, data(sequence=1, transactional=True))


def test_with_an_epoch_per_transaction_an_unknown_producer_starts_at_zero():
    late = data(sequence=3, transactional=True)
    code = refusal(Producers(), late, epoch_bumped=True)
    assert code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert taken(Producers(), late)
    assert taken(Producers(), data(transactional=True), epoch_bumped=True)


def test_an_abort_names_its_transaction_and_what_is_stable_by_then():
    producers = wrote(
        data(1, transactional=True, offset=10),
        data(2, transactional=True, offset=11),
        data(1, sequence=1, transactional=True, offset=12),
    )
    assert producers.first_unstable_offset == 10
    assert producers.update(marker(1, commit=False, offset=13)) == AbortedTxn(1, 10, 13, 11)
    assert producers.first_unstable_offset == 11
    assert producers.update(marker(2, commit=False, offset=14)) == AbortedTxn(2, 11, 14, 15)
    assert producers.first_unstable_offset is None


def test_a_commit_and_a_marker_without_a_transaction_abort_nothing():
    producers = wrote(data(transactional=True))
    assert producers.update(marker(commit=True, offset=1)) is None
    assert producers.update(marker(commit=False, offset=2)) is None


def test_after_a_marker_of_the_same_epoch_sequences_go_on():
    producers = wrote(data(transactional=True), marker(offset=1))
    assert taken(producers, data(sequence=1, transactional=True))


def test_after_a_marker_of_the_next_epoch_sequences_start_anew_and_the_old_epoch_is_fenced():
    producers = wrote(data(transactional=True), marker(epoch=1, offset=1))
    assert taken(producers, data(epoch=1, transactional=True))
    code = refusal(producers, data(sequence=1, transactional=True))
    assert code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_markers_epochs_may_not_go_back():
    producers = wrote(data(epoch=3, transactional=True), marker(epoch=3, coordinator_epoch=7))
    code = refusal(producers, marker(epoch=2, coordinator_epoch=7), Origin.COORDINATOR)
    assert code is ErrorCode.INVALID_PRODUCER_EPOCH
    code = refusal(producers, marker(epoch=3, coordinator_epoch=6), Origin.COORDINATOR)
    assert code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert taken(producers, marker(epoch=3, coordinator_epoch=7), Origin.COORDINATOR)


def test_a_late_marker_of_this_epoch_cannot_end_the_next_transaction():
    producers = wrote(data(epoch=3, transactional=True))
    late = marker(epoch=3)
    code = refusal(producers, late, Origin.COORDINATOR, epoch_bumped=True)
    assert code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert taken(producers, late, Origin.COORDINATOR)
    assert taken(producers, marker(epoch=4), Origin.COORDINATOR, epoch_bumped=True)
    producers.update(marker(epoch=4, offset=1))
    assert taken(producers, marker(epoch=4), Origin.COORDINATOR, epoch_bumped=True)


def test_the_last_epoch_ends_with_a_marker_of_its_own():
    producers = wrote(data(epoch=32767, transactional=True))
    assert taken(producers, marker(epoch=32767), Origin.COORDINATOR, epoch_bumped=True)


def test_an_emptied_control_batch_changes_nothing():
    view = marker(offset=5)
    emptied = bytearray(view.raw()[:61])
    struct.pack_into(">i", emptied, 8, 61 - 12)
    struct.pack_into(">i", emptied, 57, 0)
    producers = wrote(data(transactional=True))
    assert producers.update(BatchView(emptied)) is None
    assert producers.first_unstable_offset == 0


def test_idle_producers_expire_but_not_in_a_transaction():
    producers = wrote(
        data(1, timestamp=100),
        data(2, timestamp=200, offset=1),
        data(3, timestamp=100, transactional=True, offset=2),
    )
    assert producers.expire(now_ms=1099, expiration_ms=1000) == 0
    assert producers.expire(now_ms=1100, expiration_ms=1000) == 1
    assert [producer_id for producer_id, _ in producers.active_producers()] == [2, 3]
    assert taken(producers, data(1, sequence=9))


def test_who_is_in_a_transaction_is_known_by_epoch():
    producers = wrote(data(1, epoch=4, transactional=True))
    assert producers.in_transaction(1, 4)
    assert not producers.in_transaction(1, 3)
    assert not producers.in_transaction(2, 4)
    assert [(at, who) for at, who, _ in producers.open_transactions()] == [(0, 1)]


def test_a_snapshot_has_kafkas_bytes():
    producers = wrote(data(7, 5, epoch=2, count=3, transactional=True, offset=40, timestamp=99))
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 7, 2, 7, 42, 2, 99, -1, 40)
    assert producers.snapshot() == struct.pack(">hI", 1, crc32c(body)) + body


def test_a_snapshot_keeps_open_transactions_in_the_order_they_began():
    producers = wrote(
        data(1, offset=0),
        data(2, transactional=True, offset=1),
        data(1, 1, transactional=True, offset=2),
    )
    loaded = Producers()
    loaded.load(producers.snapshot())
    assert loaded.first_unstable_offset == 1
    producers = wrote(
        data(1, offset=0),
        data(2, transactional=True, offset=1),
        data(1, 1, transactional=True, offset=2),
    )
    producers.update(marker(2, offset=3))
    producers.update(data(2, 1, transactional=True, offset=4))
    loaded.load(producers.snapshot())
    assert [at for at, _, _ in loaded.open_transactions()] == [2, 4]


@pytest.mark.parametrize("at", range(0, 56, 3))
def test_a_damaged_or_torn_snapshot_is_not_believed(at):
    content = bytearray(wrote(data()).snapshot())
    torn = bytes(content[:at])
    content[at] ^= 1
    for snapshot in (bytes(content), torn, bytes(content) + b"x"):
        with pytest.raises(ValueError, match="snapshot"):
            Producers().load(snapshot)


# A model of many producers, with retries and restarts, against one partition.

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("new"), st.integers(1, 3), st.integers(1, 4), st.booleans()),
        st.tuples(st.just("retry"), st.integers(1, 3), st.integers(0, 8), st.booleans()),
        st.tuples(st.just("bump"), st.integers(1, 3), st.just(0), st.just(False)),
        st.tuples(st.just("end"), st.integers(1, 3), st.just(0), st.booleans()),
        st.tuples(st.just("restart"), st.just(0), st.integers(0, 5), st.just(False)),
    ),
    max_size=60,
)


class Partition:
    """Clients that keep count, and a log that writes what is allowed."""

    def __init__(self) -> None:
        self.log: list[bytes] = []
        self.next_offset = 0
        self.producers = Producers()
        self.epochs = dict.fromkeys((1, 2, 3), 0)
        self.sequences = dict.fromkeys((1, 2, 3), 0)
        self.in_transaction: dict[int, bool] = {}
        self.sent: dict[int, list[tuple[int, int, int, bool]]] = {1: [], 2: [], 3: []}
        self.places: dict[tuple[int, int, int], int] = {}
        self.kept_after_restart: dict[int, int] = {}

    def write(self, view: BatchView, origin: Origin) -> None:
        view.stamp(self.next_offset, 0)
        self.producers.update(view)
        self.log.append(bytes(view.raw()))
        self.next_offset = view.next_offset

    def produce(self, producer_id, epoch, sequence, count, transactional):
        """The base offset, or None if refused."""
        view = data(producer_id, sequence, epoch=epoch, count=count, transactional=transactional)
        try:
            duplicate = self.producers.check(view, origin=Origin.CLIENT)
        except KafkaError:
            return None
        key = (producer_id, epoch, sequence)
        if duplicate is not None:
            assert self.places[key] == duplicate.base_offset
            return duplicate.base_offset
        assert key not in self.places, "accepted twice"
        self.places[key] = self.next_offset
        self.write(view, Origin.CLIENT)
        return self.places[key]

    def new(self, producer_id, count, transactional):
        transactional = self.in_transaction.get(producer_id, transactional)
        if transactional:
            self.in_transaction[producer_id] = True
        epoch, sequence = self.epochs[producer_id], self.sequences[producer_id]
        assert self.produce(producer_id, epoch, sequence, count, transactional) is not None
        self.sequences[producer_id] += count
        self.sent[producer_id].append((epoch, sequence, count, transactional))

    def retry(self, producer_id, back, _flag):
        if back >= len(self.sent[producer_id]):
            return
        epoch, sequence, count, transactional = self.sent[producer_id][-1 - back]
        offset = self.produce(producer_id, epoch, sequence, count, transactional)
        if offset is None:
            kept = self.kept_after_restart.get(producer_id, KEPT_BATCHES)
            assert back >= min(kept, KEPT_BATCHES) or epoch != self.epochs[producer_id]

    def bump(self, producer_id, _count, _flag):
        if self.in_transaction.get(producer_id):
            self.end(producer_id, 0, False)
        self.epochs[producer_id] += 1
        self.sequences[producer_id] = 0

    def end(self, producer_id, _count, commit):
        if not self.in_transaction.pop(producer_id, False):
            return
        view = marker(producer_id, epoch=self.epochs[producer_id], commit=commit)
        assert self.producers.check(view, origin=Origin.COORDINATOR) is None
        self.write(view, Origin.COORDINATOR)

    def restart(self, _who, back, _flag):
        live, at = self.producers, max(len(self.log) - back, 0)
        assert replayed(self.log) == live or self.kept_after_restart
        restarted = Producers()
        restarted.load(replayed(self.log[:at]).snapshot())
        for raw in self.log[at:]:
            restarted.update(BatchView(raw))
        self.kept_after_restart = {}
        was = dict(live.active_producers())
        for producer_id, producer in restarted.active_producers():
            before = was[producer_id]
            kept = len(producer.batches)
            assert kept >= min(1, len(before.batches))
            assert before.batches[len(before.batches) - kept :] == producer.batches or kept > len(
                before.batches
            )
            assert (producer.epoch, producer.txn_first_offset, producer.last_timestamp) == (
                before.epoch,
                before.txn_first_offset,
                before.last_timestamp,
            )
            self.kept_after_restart[producer_id] = kept
        assert restarted.first_unstable_offset == live.first_unstable_offset
        self.producers = restarted


def replayed(log: list[bytes]) -> Producers:
    return wrote(*(BatchView(raw) for raw in log))


@settings(max_examples=150)
@given(STEPS)
def test_nothing_is_accepted_twice_and_replay_rebuilds_the_live_state(steps):
    partition = Partition()
    for name, producer_id, number, flag in steps:
        getattr(partition, name)(producer_id, number, flag)
    if not partition.kept_after_restart:
        assert replayed(partition.log) == partition.producers
