import socket
from pathlib import Path

import pytest

from headrace.client.admin import LATEST, Admin, ConfigKind, NewTopic
from headrace.client.librdkafka import TopicPartition
from headrace.client.producer import NewRecord, Producer
from headrace.errors import StartRefused
from headrace.testing import LocalBroker

WAIT_S = 30.0
PLACE = TopicPartition("kept", 0)


def write(bootstrap: str) -> None:
    producer = Producer(bootstrap)
    producer.send(PLACE.topic, NewRecord(b"x"))
    assert producer.flush(WAIT_S) == 0


def test_a_restart_keeps_the_address_and_the_records() -> None:
    with LocalBroker() as broker:
        before = broker.bootstrap
        Admin(before).create_topic(NewTopic(PLACE.topic, partitions=1))
        write(before)
        broker.restart()
        assert broker.bootstrap == before
        write(before)
        assert Admin(before).offsets([PLACE], LATEST) == {PLACE: 2}


def test_its_own_directory_goes_away_and_a_given_one_stays(tmp_path: Path) -> None:
    with LocalBroker() as broker:
        own = broker.data_dir
        assert own.is_dir()
    assert not own.exists()
    with LocalBroker(data_dir=tmp_path / "data") as broker:
        Admin(broker.bootstrap).create_topic(NewTopic(PLACE.topic, partitions=1))
    assert (tmp_path / "data" / "kept-0").is_dir()


def test_records_are_acknowledged_without_waiting_for_the_disk_unless_told() -> None:
    for settings, expected in [({}, "true"), ({"log.write.caching": "false"}, "false")]:
        with LocalBroker(settings=settings) as broker:
            admin = Admin(broker.bootstrap)
            admin.create_topic(NewTopic(PLACE.topic, partitions=1))
            entries = admin.configs(ConfigKind.TOPIC, PLACE.topic)
            assert {entry.name: entry.value for entry in entries}["write.caching"] == expected


def test_a_broker_that_cannot_start_says_why() -> None:
    broker = LocalBroker(settings={"log.retention.hours": "soon"})
    with pytest.raises(RuntimeError, match=r"the broker did not start: .*log\.retention\.hours"):
        broker.start()


def test_two_brokers_on_one_directory_are_refused(tmp_path: Path) -> None:
    with LocalBroker(data_dir=tmp_path) as first:
        second = LocalBroker(data_dir=tmp_path)
        with pytest.raises(RuntimeError, match="the broker did not start: ") as refused:
            second.start()
        assert isinstance(refused.value.__cause__, StartRefused)
        assert str(tmp_path) in str(refused.value)
        write_port = int(first.bootstrap.rpartition(":")[2])
        socket.create_connection(("127.0.0.1", write_port), WAIT_S).close()


def test_a_broker_that_does_not_run_has_no_address_and_may_be_stopped_again() -> None:
    broker = LocalBroker()
    with pytest.raises(RuntimeError, match="not running"):
        _ = broker.bootstrap
    with broker:
        with pytest.raises(RuntimeError, match="running already"):
            broker.start()
        port = int(broker.bootstrap.rpartition(":")[2])
    broker.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), WAIT_S)
