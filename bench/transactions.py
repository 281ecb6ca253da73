"""Transactions: how many of one record a second, and what exactly-once costs a pipeline."""

import time
from collections.abc import Iterator
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from bench.cells import Cell, quantile
from bench.rdkafka_client import create_topic, produce_seconds
from bench.systems import System

LIMIT_S = 60.0
WARM_UP = 20
TRANSACTIONS = 400
RECORD = b"x" * 100
WARM_UP_RECORDS = 10_000
PIPELINE_RECORDS = 100_000
COMMIT_EVERY_S = 0.1
LOADING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


def measure(system: System) -> Iterator[Cell]:
    return _measure(system, "")


def measure_synced(system: System) -> Iterator[Cell]:
    return _measure(system, "synced ")


def _measure(system: System, prefix: str) -> Iterator[Cell]:
    times = _one_record_each(system.bootstrap)
    name = f"{prefix}transactions of one record"
    yield Cell(name, len(times) / sum(times), "/s")
    yield Cell(f"{name}: p99", quantile(times, 0.99) * 1000, "ms", more_is_better=False)
    create_topic(system.bootstrap, "input", 1)
    produce_seconds(system.bootstrap, "input", "none", RECORD, PIPELINE_RECORDS)
    for transactional in (False, True):
        _pipeline(system.bootstrap, WARM_UP_RECORDS, transactional=transactional)
    plain = _pipeline(system.bootstrap, PIPELINE_RECORDS, transactional=False)
    exactly_once = _pipeline(system.bootstrap, PIPELINE_RECORDS, transactional=True)
    yield Cell(f"{prefix}pipeline, at least once", plain, "rec/s")
    yield Cell(f"{prefix}pipeline, exactly once, commits each 100 ms", exactly_once, "rec/s")
    yield Cell(f"{prefix}exactly once beside at least once", exactly_once / plain, "x")


def _one_record_each(bootstrap: str) -> list[float]:
    create_topic(bootstrap, "one-each", 1)
    producer = _transactional(bootstrap)
    times = []
    for _ in range(WARM_UP + TRANSACTIONS):
        started = time.perf_counter()
        producer.begin_transaction()
        producer.produce("one-each", RECORD, partition=0)
        producer.commit_transaction(LIMIT_S)
        times.append(time.perf_counter() - started)
    return times[WARM_UP:]


def _pipeline(bootstrap: str, count: int, *, transactional: bool) -> float:
    """Records a second from one topic into another, with offsets committed each 100 ms."""
    output = f"output-{uuid4().hex[:8]}"
    create_topic(bootstrap, output, 1)
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": output, "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition("input", 0, 0)])
    producer = (
        _transactional(bootstrap)
        if transactional
        else Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    )
    done, started = 0, time.perf_counter()
    while done < count:
        if transactional:
            producer.begin_transaction()
        done = _until_commit(consumer, producer, output, done, count)
        places = [TopicPartition("input", 0, done)]
        if transactional:
            metadata = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction(places, metadata, LIMIT_S)
            producer.commit_transaction(LIMIT_S)
        else:
            producer.flush(LIMIT_S)
            _commit(consumer, places)
    seconds = time.perf_counter() - started
    consumer.close()
    return done / seconds


def _until_commit(
    consumer: Consumer, producer: Producer, output: str, done: int, count: int
) -> int:
    deadline = time.perf_counter() + COMMIT_EVERY_S
    while done < count and (left := deadline - time.perf_counter()) > 0:
        for message in consumer.consume(1000, min(left, 0.02)):
            while True:
                try:
                    producer.produce(output, message.value())
                    break
                except BufferError:
                    producer.poll(0.01)
            done = message.offset() + 1
    return done


def _commit(consumer: Consumer, places: list[TopicPartition]) -> None:
    """Until the coordinator takes it: Kafka's is still loading when its topic is new."""
    deadline = time.perf_counter() + LIMIT_S
    while True:
        try:
            consumer.commit(offsets=places, asynchronous=False)
            return
        except KafkaException as error:
            if error.args[0].code() not in LOADING or time.perf_counter() > deadline:
                raise
            time.sleep(0.05)


def _transactional(bootstrap: str) -> Producer:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": uuid4().hex, "linger.ms": 5}
    )
    producer.init_transactions(LIMIT_S)
    return producer
