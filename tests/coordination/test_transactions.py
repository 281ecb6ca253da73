"""Each answer of the coordinator's machine, against the tables Kafka's own code draws."""

from dataclasses import replace

import pytest

from headrace.coordination.transaction_moves import (
    NEXT,
    TRANSACTIONS_V0,
    TRANSACTIONS_V2,
    ProducerIdNeeded,
)
from headrace.coordination.transaction_records import (
    MAX_EPOCH,
    Forgotten,
    ProducerIdentity,
    TopicPartition,
    Transaction,
    TransactionState,
)
from headrace.coordination.transactions import Answer, Transactions, WriteMarkers
from headrace.errors import ErrorCode, KafkaError

ORDERS = frozenset({TopicPartition("orders", 0)})
PAYMENTS = frozenset({TopicPartition("payments", 3)})
NOW = 1_000
S = TransactionState


def transaction(state, *, epoch=5, producer_id=100, **changes):
    txn = Transaction(
        transactional_id="t",
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=60_000,
        state=state,
        partitions=ORDERS
        if state in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT)
        else frozenset(),
        started_ms=500,
        updated_ms=500,
        previous_producer_id=producer_id,
    )
    return replace(txn, **changes)


def machine_with(*records):
    machine = Transactions(max_timeout_ms=900_000)
    for record in records:
        machine.replay(record)
    return machine


def carried_out(machine, decision):
    for record in decision.records:
        machine.replay(record)
    return decision


def init(machine, *, expected=None, fresh_id=100, timeout_ms=60_000, transactional_id="t"):
    return carried_out(
        machine,
        machine.init(
            transactional_id,
            timeout_ms=timeout_ms,
            expected=expected,
            fresh_id=fresh_id,
            now_ms=NOW,
        ),
    )


def end(machine, identity, *, committed, version, fresh_id=None):
    return carried_out(
        machine,
        machine.end(
            "t",
            ProducerIdentity(*identity),
            committed=committed,
            client_version=version,
            fresh_id=fresh_id,
            now_ms=NOW,
        ),
    )


def add(machine, identity, partitions, *, version=TRANSACTIONS_V0):
    return carried_out(
        machine,
        machine.add_partitions(
            "t", ProducerIdentity(*identity), partitions, client_version=version, now_ms=NOW
        ),
    )


def refused(call, *arguments, **options):
    with pytest.raises(KafkaError) as refusal:
        call(*arguments, **options)
    return refusal.value.code


def answer(decision):
    (found,) = (effect for effect in decision.effects if isinstance(effect, Answer))
    return found


def markers(decision):
    return [effect for effect in decision.effects if isinstance(effect, WriteMarkers)]


def test_a_new_transactional_id_starts_at_epoch_zero_with_the_given_producer_id():
    machine = machine_with()
    assert answer(init(machine, fresh_id=7)).identity == (7, 0)
    assert answer(init(machine, fresh_id=None)).identity == (7, 1)


def test_a_new_transactional_id_asks_for_a_producer_id():
    with pytest.raises(ProducerIdNeeded):
        init(machine_with(), fresh_id=None)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_bounds_is_refused(timeout_ms):
    code = refused(init, machine_with(), timeout_ms=timeout_ms)
    assert code is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_an_empty_transactional_id_is_refused():
    assert refused(init, machine_with(), transactional_id="") is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_nothing_starts_while_the_last_transaction_is_ending(state):
    machine = machine_with(transaction(state))
    assert refused(init, machine) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert refused(add, machine, (100, 5), PAYMENTS) is ErrorCode.CONCURRENT_TRANSACTIONS
    for version in (TRANSACTIONS_V0, TRANSACTIONS_V2):
        code = refused(end, machine, (100, 5), committed=True, version=version)
        assert code is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_new_producer_aborts_the_ongoing_transaction_and_fences_its_owner():
    machine = machine_with(transaction(S.ONGOING))
    decision = init(machine)
    assert answer(decision).error is ErrorCode.CONCURRENT_TRANSACTIONS
    (write,) = markers(decision)
    assert not write.committed
    assert write.transaction.identity == (100, 6)
    assert write.transaction.partitions == ORDERS
    carried_out(machine, machine.markers_written(write.transaction, now_ms=NOW))
    assert answer(init(machine)).identity == (100, 7)
    assert refused(add, machine, (100, 5), ORDERS) is ErrorCode.PRODUCER_FENCED


def test_an_exhausted_epoch_takes_a_new_producer_id():
    machine = machine_with(transaction(S.COMPLETE_COMMIT, epoch=MAX_EPOCH - 1))
    assert answer(init(machine, fresh_id=200)).identity == (200, 0)
    assert machine.find("t").previous_producer_id == 100


def test_recovery_raises_the_epoch_once_however_often_it_is_asked():
    machine = machine_with(transaction(S.COMPLETE_ABORT))
    assert answer(init(machine, expected=ProducerIdentity(100, 5))).identity == (100, 6)
    assert answer(init(machine, expected=ProducerIdentity(100, 5))).identity == (100, 6)
    assert answer(init(machine, expected=ProducerIdentity(100, 6))).identity == (100, 7)


def test_recovery_across_an_exhausted_epoch_can_be_asked_again():
    machine = machine_with(transaction(S.COMPLETE_ABORT, epoch=MAX_EPOCH - 1))
    last = ProducerIdentity(100, MAX_EPOCH - 1)
    assert answer(init(machine, expected=last, fresh_id=200)).identity == (200, 0)
    assert answer(init(machine, expected=last, fresh_id=300)).identity == (200, 0)


@pytest.mark.parametrize("expected", [(100, 3), (100, 6), (99, 5)])
def test_recovery_as_somebody_else_is_fenced(expected):
    machine = machine_with(transaction(S.COMPLETE_ABORT))
    code = refused(init, machine, expected=ProducerIdentity(*expected))
    assert code is ErrorCode.PRODUCER_FENCED


def test_a_fenced_producer_cannot_recover_once_another_started():
    machine = machine_with(transaction(S.COMPLETE_ABORT))
    init(machine)
    code = refused(init, machine, expected=ProducerIdentity(100, 5))
    assert code is ErrorCode.PRODUCER_FENCED


def test_partitions_gather_in_one_transaction_that_began_with_the_first():
    machine = machine_with(transaction(S.EMPTY, started_ms=-1))
    add(machine, (100, 5), ORDERS)
    assert not add(machine, (100, 5), ORDERS).records
    add(machine, (100, 5), PAYMENTS)
    txn = machine.find("t")
    assert (txn.state, txn.partitions, txn.started_ms) == (S.ONGOING, ORDERS | PAYMENTS, NOW)


def test_only_the_owner_adds_partitions():
    machine = machine_with(transaction(S.ONGOING))
    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert refused(add, machine, (100, 4), PAYMENTS) is ErrorCode.PRODUCER_FENCED
    assert refused(add, machine, (100, 6), PAYMENTS) is ErrorCode.PRODUCER_FENCED
    assert refused(add, machine, (101, 5), PAYMENTS) is mapping
    assert refused(add, machine_with(), (100, 5), PAYMENTS) is mapping


def test_verification_names_the_partitions_that_were_not_added():
    machine = machine_with(transaction(S.ONGOING))
    owner = ProducerIdentity(100, 5)
    assert machine.missing("t", owner, ORDERS | PAYMENTS) == PAYMENTS
    assert machine.missing("t", owner, ORDERS) == frozenset()
    ended = machine_with(transaction(S.COMPLETE_COMMIT))
    assert ended.missing("t", owner, ORDERS) == ORDERS
    zombie = ProducerIdentity(100, 4)
    assert refused(machine.missing, "t", zombie, ORDERS) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("committed", [True, False])
def test_an_old_client_keeps_its_epoch_through_an_end(committed):
    machine = machine_with(transaction(S.ONGOING))
    decision = end(machine, (100, 5), committed=committed, version=TRANSACTIONS_V0)
    (write,) = markers(decision)
    assert (write.committed, write.transaction.identity) == (committed, (100, 5))
    carried_out(machine, machine.markers_written(write.transaction, now_ms=NOW))
    assert machine.find("t").identity == (100, 5)
    again = end(machine, (100, 5), committed=committed, version=TRANSACTIONS_V0)
    assert (again.records, answer(again).error) == ((), ErrorCode.NONE)
    code = refused(end, machine, (100, 5), committed=not committed, version=TRANSACTIONS_V0)
    assert code is ErrorCode.INVALID_TXN_STATE


def test_an_old_client_cannot_end_what_never_began():
    machine = machine_with(transaction(S.EMPTY))
    for committed in (True, False):
        code = refused(end, machine, (100, 5), committed=committed, version=TRANSACTIONS_V0)
        assert code is ErrorCode.INVALID_TXN_STATE


RAISED = "raised"
V2_ENDS = [
    (S.EMPTY, False, 4, ErrorCode.PRODUCER_FENCED),
    (S.EMPTY, False, 5, RAISED),
    (S.EMPTY, True, 4, ErrorCode.PRODUCER_FENCED),
    (S.EMPTY, True, 5, ErrorCode.INVALID_TXN_STATE),
    (S.COMPLETE_ABORT, False, 4, ErrorCode.NONE),
    (S.COMPLETE_ABORT, False, 5, RAISED),
    (S.COMPLETE_ABORT, True, 4, ErrorCode.INVALID_TXN_STATE),
    (S.COMPLETE_ABORT, True, 5, ErrorCode.INVALID_TXN_STATE),
    (S.COMPLETE_COMMIT, False, 4, ErrorCode.INVALID_TXN_STATE),
    (S.COMPLETE_COMMIT, False, 5, RAISED),
    (S.COMPLETE_COMMIT, True, 4, ErrorCode.NONE),
    (S.COMPLETE_COMMIT, True, 5, ErrorCode.INVALID_TXN_STATE),
    (S.COMPLETE_COMMIT, True, 3, ErrorCode.PRODUCER_FENCED),
    (S.COMPLETE_COMMIT, True, 6, ErrorCode.PRODUCER_FENCED),
    (S.ONGOING, True, 4, ErrorCode.PRODUCER_FENCED),
    (S.ONGOING, False, 6, ErrorCode.PRODUCER_FENCED),
    (S.ONGOING, True, 5, RAISED),
    (S.ONGOING, False, 5, RAISED),
]


@pytest.mark.parametrize(("state", "committed", "epoch", "outcome"), V2_ENDS)
def test_an_end_of_transactions_v2_follows_the_table(state, committed, epoch, outcome):
    machine = machine_with(transaction(state))
    if outcome is RAISED:
        decision = end(machine, (100, epoch), committed=committed, version=TRANSACTIONS_V2)
        assert answer(decision).identity == (100, 6)
        assert markers(decision)[0].committed is committed
    elif outcome is ErrorCode.NONE:
        decision = end(machine, (100, epoch), committed=committed, version=TRANSACTIONS_V2)
        assert (decision.records, answer(decision).identity) == ((), (100, 5))
    else:
        options = {"committed": committed, "version": TRANSACTIONS_V2}
        assert refused(end, machine, (100, epoch), **options) is outcome


def test_the_last_epoch_of_an_id_ends_in_a_new_id_and_the_end_can_be_asked_again():
    machine = machine_with(transaction(S.ONGOING, epoch=MAX_EPOCH - 1))
    last = (100, MAX_EPOCH - 1)
    with pytest.raises(ProducerIdNeeded):
        end(machine, last, committed=True, version=TRANSACTIONS_V2)
    decision = end(machine, last, committed=True, version=TRANSACTIONS_V2, fresh_id=200)
    (write,) = markers(decision)
    assert answer(decision).identity == (200, 0)
    assert write.transaction.identity == (100, MAX_EPOCH)
    carried_out(machine, machine.markers_written(write.transaction, now_ms=NOW))
    assert machine.find("t").identity == (200, 0)
    again = end(machine, last, committed=True, version=TRANSACTIONS_V2, fresh_id=300)
    assert (again.records, answer(again).identity) == ((), (200, 0))
    add(machine, (200, 0), ORDERS, version=TRANSACTIONS_V2)
    code = refused(end, machine, last, committed=True, version=TRANSACTIONS_V2, fresh_id=300)
    assert code is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_transaction_past_its_timeout_is_aborted_and_its_owner_fenced():
    machine = machine_with(transaction(S.ONGOING, timeout_ms=100))
    assert machine.timed_out(600) == []
    assert not machine.abort_timed_out("t", fresh_id=None, now_ms=600).records
    assert machine.timed_out(601) == ["t"]
    decision = carried_out(machine, machine.abort_timed_out("t", fresh_id=None, now_ms=601))
    (write,) = markers(decision)
    assert (write.committed, write.transaction.identity) == (False, (100, 6))
    assert machine.timed_out(10**9) == []


@pytest.mark.parametrize("state", list(S))
def test_only_a_transactional_id_at_rest_expires(state):
    machine = machine_with(transaction(state))
    fresh = machine.expire(expiration_ms=501, now_ms=NOW)
    stale = machine.expire(expiration_ms=500, now_ms=NOW)
    at_rest = state in (S.EMPTY, S.COMPLETE_ABORT, S.COMPLETE_COMMIT)
    assert fresh.records == ()
    assert stale.records == ((Forgotten("t"),) if at_rest else ())


def test_markers_of_another_end_complete_nothing():
    prepared = transaction(S.PREPARE_COMMIT)
    machine = machine_with(prepared)
    assert not machine.markers_written(replace(prepared, producer_epoch=4), now_ms=NOW).records
    assert machine.markers_written(prepared, now_ms=NOW).records
    assert not machine_with().markers_written(prepared, now_ms=NOW).records


def test_a_prepared_end_has_one_way_out():
    assert NEXT[S.PREPARE_COMMIT] == {S.COMPLETE_COMMIT}
    assert NEXT[S.PREPARE_ABORT] == {S.COMPLETE_ABORT}
    assert set(NEXT) == set(S)
