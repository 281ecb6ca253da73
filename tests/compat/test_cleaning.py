"""Retention and compaction of a running broker, seen through clients, kills and Kafka's tools."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import psutil
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from headrace.log.checkpoints import read_offsets
from headrace.testing import LocalBroker
from headrace.testing.apache_kafka import ApacheKafka, missing, tool
from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.compat

TOPIC = "accounts"
KEYS = 200
WAIT_S = 30.0
# Everything at once: no log is too small or too young to be cleaned.
EAGER = {
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "100",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.max.compaction.lag.ms": "300",
    "log.flush.offset.checkpoint.interval.ms": "200",
    "log.segment.delete.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
SEGMENTS = {"segment.bytes": "1048576"}


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {WAIT_S:g} s: {what}"
        time.sleep(0.05)


def create(bootstrap: str, policy: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = NewTopic(TOPIC, 2, 1, config={"cleanup.policy": policy, **SEGMENTS, **configs})
    for created in admin.create_topics([wanted]).values():
        created.result(WAIT_S)


def fill(
    bootstrap: str, count: int, codec: str = "none", first: int = 0, *, idempotent: bool = True
) -> dict[bytes, bytes]:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "batch.size": 4096,
            "enable.idempotence": idempotent,
            "log_level": 0,
        }
    )
    state = {}
    for number in range(first, first + count):
        key, value = b"%d" % (number % KEYS), b"%d-" % number + b"x" * 500
        producer.produce(TOPIC, value, key, partition=0)
        producer.poll(0)
        state[key] = value
    assert producer.flush(WAIT_S) == 0
    return state


def end_offset(bootstrap: str) -> int:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "asks", "log_level": 0}
    )
    high: int
    _low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), WAIT_S)
    consumer.close()
    return high


def read(bootstrap: str) -> list[confluent_kafka.Message]:
    """Every committed record of the topic, from its start to its end."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, confluent_kafka.OFFSET_BEGINNING)])
    found = []
    while (message := consumer.poll(WAIT_S)) is not None:
        if message.error():
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
            break
        found.append(message)
    consumer.close()
    return found


def snapshot(bootstrap: str) -> dict[bytes, bytes]:
    state: dict[bytes, bytes] = {}
    for message in read(bootstrap):
        if message.value() is None:
            state.pop(message.key(), None)
        else:
            state[message.key()] = message.value()
    return state


def cleaned(data_dir: Path, topic: str) -> int:
    """Up to which offset partition 0 of a topic was compacted."""
    path = data_dir / "cleaner-offset-checkpoint"
    # Kafka makes the file before it has anything to say in it.
    content = path.read_bytes() if path.exists() else b""
    return read_offsets(content).get((topic, 0), 0) if content else 0


def test_a_new_reader_builds_the_whole_state_from_the_compacted_log_and_follows_its_tail() -> None:
    with LocalBroker(settings=EAGER) as broker:
        create(broker.bootstrap, "compact")
        state = fill(broker.bootstrap, 10_000)
        until(lambda: cleaned(broker.data_dir, TOPIC) == 10_000, "all of it is compacted")
        found = read(broker.bootstrap)
        assert len(found) < 2 * KEYS
        assert {message.key(): message.value() for message in found} == state
        assert [message.offset() for message in found] == sorted(
            message.offset() for message in found
        )
        state |= fill(broker.bootstrap, 10, first=10_000)
        assert snapshot(broker.bootstrap) == state


def test_what_was_dropped_no_longer_takes_up_the_disk() -> None:
    with BrokerProcess(EAGER) as broker:
        create(broker.bootstrap, "compact")
        fill(broker.bootstrap, 6_000)
        snapshot(broker.bootstrap)
        until(lambda: cleaned(broker.data_dir, TOPIC) == 6_000, "all of it is compacted")
        until(lambda: size(broker.data_dir) < 200_000, "the files are gone")
        held = [path.readlink() for path in Path(f"/proc/{broker.pid}/fd").iterdir()]
        assert not [path for path in held if TOPIC in str(path) and "(deleted)" in str(path)]


def test_readers_and_writers_notice_nothing_of_compaction() -> None:
    with LocalBroker(settings=EAGER) as broker:
        create(broker.bootstrap, "compact", **{"max.compaction.lag.ms": "100"})
        state: dict[bytes, bytes] = {}
        for start in range(0, 12_000, 2_000):
            state |= fill(broker.bootstrap, 2_000, first=start)
            assert snapshot(broker.bootstrap) == state
        assert cleaned(broker.data_dir, TOPIC) > 0


def test_retention_drops_old_segments_and_the_start_survives_a_restart() -> None:
    with LocalBroker(settings=EAGER) as broker:
        create(broker.bootstrap, "delete", **{"retention.bytes": "2000000"})
        fill(broker.bootstrap, 10_000)
        until(lambda: size(broker.data_dir) < 3_200_000, "the files are gone")
        kept = [message.offset() for message in read(broker.bootstrap)]
        assert kept[-1] == 9_999
        broker.restart()
        assert [message.offset() for message in read(broker.bootstrap)] == kept


def size(data_dir: Path) -> int:
    return sum(path.stat().st_size for path in (data_dir / f"{TOPIC}-0").glob("*.log*"))


def test_records_older_than_retention_ms_go_with_the_active_segment() -> None:
    with LocalBroker(settings=EAGER) as broker:
        create(broker.bootstrap, "compact,delete", **{"retention.ms": "500"})
        fill(broker.bootstrap, 10)
        until(lambda: not read(broker.bootstrap), "all of it is dropped")
        assert end_offset(broker.bootstrap) == 10
        broker.restart()
        assert end_offset(broker.bootstrap) == 10
        fill(broker.bootstrap, 1, first=10)


def test_groups_and_transactions_are_the_same_after_their_topics_were_compacted() -> None:
    with LocalBroker(settings=EAGER) as broker:
        create(broker.bootstrap, "delete")
        fill(broker.bootstrap, 10)
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": broker.bootstrap, "transactional.id": "t", "log_level": 0}
        )
        producer.init_transactions(WAIT_S)
        config = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
        groups = [confluent_kafka.Consumer({**config, "group.id": f"group-{n}"}) for n in range(3)]
        for number in range(60):
            for at, consumer in enumerate(groups):
                offset = TopicPartition(TOPIC, 0, number % 10 + at % 2)
                consumer.commit(offsets=[offset], asynchronous=False)
            producer.begin_transaction()
            producer.produce(TOPIC, b"in a transaction", b"%d" % number, partition=0)
            producer.send_offsets_to_transaction(
                [TopicPartition(TOPIC, 1, number)], groups[0].consumer_group_metadata(), WAIT_S
            )
            if number % 2:
                producer.commit_transaction(WAIT_S)
            else:
                producer.abort_transaction(WAIT_S)
        committed = [offsets(consumer) for consumer in groups]
        assert committed[0][1] == 59
        until(lambda: cleaned(broker.data_dir, "__consumer_offsets") > 200, "it is compacted")
        until(lambda: cleaned(broker.data_dir, "__transaction_state") > 200, "it is compacted")
        # The markers stay for a day, the offsets they committed were replaced.
        until(lambda: log_bytes(broker.data_dir, "__consumer_offsets") < 12_000, "little is left")
        before = len(read(broker.bootstrap))
        for _ in range(2):
            broker.restart()
            assert [offsets(consumer) for consumer in groups] == committed
            assert len(read(broker.bootstrap)) == before
        # The producer's id and epoch are still its own: it goes on, and an older one is fenced.
        producer.begin_transaction()
        producer.produce(TOPIC, b"after", b"after", partition=0)
        producer.commit_transaction(WAIT_S)
        assert len(read(broker.bootstrap)) == before + 1
        for consumer in groups:
            consumer.close()


def offsets(consumer: confluent_kafka.Consumer) -> list[int]:
    asked = [TopicPartition(TOPIC, index) for index in (0, 1)]
    return [found.offset for found in consumer.committed(asked, WAIT_S)]


def log_bytes(data_dir: Path, topic: str) -> int:
    return sum(path.stat().st_size for path in (data_dir / f"{topic}-0").glob("*.log"))


def workers(broker: BrokerProcess) -> list[psutil.Process]:
    try:
        return list(psutil.Process(broker.pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def writing(broker: BrokerProcess) -> bool:
    """Whether a compaction is writing at this moment."""
    return any(broker.data_dir.glob("*/*.cleaned"))


def test_a_kill_in_the_midst_of_compaction_loses_nothing_and_leaves_no_worker(
    tmp_path: Path,
) -> None:
    # So slow that it is seen in the midst of it, however slow the machine.
    slow = {**EAGER, "log.cleaner.io.max.bytes.per.second": "1000000"}
    with BrokerProcess(slow, directory=tmp_path) as broker:
        create(broker.bootstrap, "compact")
        state = fill(broker.bootstrap, 3_000)
        for _ in range(3):
            # There is always more to compact until it is seen.
            until(
                lambda: writing(broker) or not fill(broker.bootstrap, KEYS, first=3_000),
                "compaction writes",
            )
            found = workers(broker)
            assert found
            broker.kill()
            psutil.wait_procs(found, WAIT_S)
            assert not any(process.is_running() for process in found)
            broker.start()
            state |= fill(broker.bootstrap, KEYS, first=3_000)
            assert snapshot(broker.bootstrap) == state
    with BrokerProcess(EAGER, directory=tmp_path) as broker:
        until(lambda: len(read(broker.bootstrap)) < 3 * KEYS, "all of it is compacted")
        assert snapshot(broker.bootstrap) == state


def test_a_worker_that_is_killed_is_started_again() -> None:
    slow = {**EAGER, "log.cleaner.io.max.bytes.per.second": "1000000"}
    with BrokerProcess(slow) as broker:
        create(broker.bootstrap, "compact")
        state = fill(broker.bootstrap, 3_000)
        until(lambda: bool(workers(broker)), "compaction runs")
        (found,) = workers(broker)
        found.kill()
        until(lambda: len(read(broker.bootstrap)) < 3 * KEYS, "all of it is compacted")
        assert snapshot(broker.bootstrap) == state
        assert "compaction failed" in broker.log


def test_a_broker_that_stops_does_not_wait_for_a_compaction() -> None:
    # Left to itself it would take longer than a stop may.
    slow = {**EAGER, "log.cleaner.io.max.bytes.per.second": "100000"}
    with BrokerProcess(slow) as broker:
        create(broker.bootstrap, "compact")
        state = fill(broker.bootstrap, 3_000)
        until(lambda: bool(workers(broker)), "compaction runs")
        found = workers(broker)
        started = time.monotonic()
        assert broker.stop() == 0
        assert time.monotonic() - started < 10
        assert not any(process.is_running() for process in found)
        broker.start()
        assert snapshot(broker.bootstrap) == state


def compacted_directory(broker: BrokerProcess) -> dict[bytes, bytes]:
    """A topic with every codec, tombstones and transactions, compacted and closed."""
    create(broker.bootstrap, "compact", **{"delete.retention.ms": "86400000"})
    state: dict[bytes, bytes] = {}
    for at, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd"]):
        state |= fill(broker.bootstrap, 2_000, codec, first=at * 2_000 + at * 7)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": "t", "log_level": 0}
    )
    producer.init_transactions(WAIT_S)
    for number in range(20):
        producer.begin_transaction()
        key = b"%d" % number
        producer.produce(TOPIC, None if number % 4 else b"changed", key, partition=0)
        if number % 3:
            producer.commit_transaction(WAIT_S)
            state.pop(key)
            if not number % 4:
                state[key] = b"changed"
        else:
            producer.abort_transaction(WAIT_S)
    last = end_offset(broker.bootstrap)
    until(lambda: cleaned(broker.data_dir, TOPIC) == last, "all of it is compacted")
    state |= fill(broker.bootstrap, 50, first=50)
    last = end_offset(broker.bootstrap)
    until(lambda: cleaned(broker.data_dir, TOPIC) == last, "once more")
    assert snapshot(broker.bootstrap) == state
    assert broker.stop() == 0
    return state


@pytest.mark.oracle
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_kafka_reads_what_we_compacted_and_goes_on_from_there() -> None:
    with BrokerProcess(EAGER) as broker:
        state = compacted_directory(broker)
        directory = broker.data_dir / f"{TOPIC}-0"
        logs = sorted(str(path) for path in directory.glob("*.log"))
        dump = "org.apache.kafka.tools.DumpLogSegments"
        deep = tool(dump, "--deep-iteration", "--files", ",".join(logs))
        assert "isvalid: false" not in deep
        assert "deleteHorizonMs: OptionalLong[" in deep, "tombstones carry a horizon"
        indexes = sorted(str(path) for path in directory.glob("*index"))
        assert "Mismatches" not in tool(dump, "--verify-index-only", "--files", ",".join(indexes))
        tool(dump, "--index-sanity-check", "--files", ",".join(indexes))
        settings = {"log.cleaner.backoff.ms": "100", "log.cleaner.min.cleanable.ratio": "0.01"}
        with ApacheKafka(settings, heap="400M") as apache:
            create(apache.bootstrap, "compact")
            apache.stop()
            theirs = apache.data_dir / f"{TOPIC}-0"
            metadata = (theirs / "partition.metadata").read_bytes()
            shutil.rmtree(theirs)
            shutil.copytree(directory, theirs)
            (theirs / "partition.metadata").write_bytes(metadata)
            apache.start()
            assert snapshot(apache.bootstrap) == state
            # Its first producer would get the id of one whose last sequence our files remember.
            state |= fill(apache.bootstrap, 4_000, idempotent=False)
            until(
                lambda: cleaned(apache.data_dir, TOPIC) > 10_000,
                "Kafka's own cleaner has cleaned what we had cleaned",
            )
            assert snapshot(apache.bootstrap) == state
            server_log = (apache.directory / "server.log").read_text()
            assert "uncleanable" not in server_log


def history(bootstrap: str) -> None:
    """Replaced records, tombstones, transactions committed and aborted, over several segments."""
    create(bootstrap, "compact")
    fill(bootstrap, 1_500)
    for name in ("one", "two"):
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0}
        )
        producer.init_transactions(WAIT_S)
        for number in range(30):
            producer.begin_transaction()
            for key in (b"%d" % number, b"%s %d" % (name.encode(), number // 2)):
                value = b"changed" if number % 4 else None
                producer.produce(TOPIC, value, key, partition=0)
            if number % 3:
                producer.commit_transaction(WAIT_S)
            else:
                producer.abort_transaction(WAIT_S)
        fill(bootstrap, 1_500, "lz4", first=1_500)
    fill(bootstrap, 4_500, first=3_007)


def shapes(directory: Path) -> list[tuple[str, ...]]:
    """Every batch by the fields that compaction must keep or change as Kafka does."""
    logs = sorted(str(path) for path in directory.glob("*.log"))
    dumped = tool("org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(logs))
    fields: tuple[str, ...] = (
        "baseOffset",
        "lastOffset",
        "count",
        "baseSequence",
        "lastSequence",
        "producerId",
    )
    fields += ("producerEpoch", "isTransactional", "isControl", "compresscodec", "isvalid")
    found = []
    for line in dumped.splitlines():
        if line.startswith("baseOffset"):
            words = line.replace(":", "").split()
            horizon = str("deleteHorizonMs OptionalLong[" in " ".join(words))
            found.append((*(words[words.index(name) + 1] for name in fields), horizon))
    return found


@pytest.mark.oracle
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_kafkas_cleaner_leaves_the_same_batches_of_the_same_files() -> None:
    settings = {"log.cleaner.backoff.ms": "100", "log.cleaner.min.cleanable.ratio": "0.01"}
    with BrokerProcess({"log.cleaner.enable": "false"}) as broker:
        history(broker.bootstrap)
        broker.stop()
        ours = broker.data_dir / f"{TOPIC}-0"
        active = int(sorted(path.stem for path in ours.glob("*.log"))[-1])
        assert active > 5_000
        with ApacheKafka(settings, heap="400M") as apache:
            create(apache.bootstrap, "delete")
            apache.stop()
            theirs = apache.data_dir / f"{TOPIC}-0"
            metadata = (theirs / "partition.metadata").read_bytes()
            shutil.rmtree(theirs)
            shutil.copytree(ours, theirs)
            (theirs / "partition.metadata").write_bytes(metadata)
            apache.start()
            alter(apache.bootstrap, "compact")
            until(lambda: cleaned(apache.data_dir, TOPIC) == active, "Kafka has compacted it")
            apache.stop()
            expected = shapes(theirs)
        # Emptied batches, markers and tombstones with a horizon are all among them.
        assert {("0", "False"), ("1", "True")} <= {(row[2], row[-1]) for row in expected}
        eager = {**settings, "log.initial.task.delay.ms": "0"}
        with BrokerProcess(eager, directory=broker.directory) as again:
            until(lambda: cleaned(again.data_dir, TOPIC) == active, "we have compacted it")
            again.stop()
            assert shapes(ours) == expected


def alter(bootstrap: str, policy: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(WAIT_S)
