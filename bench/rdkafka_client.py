"""The client that production Python uses: librdkafka through confluent-kafka."""

import time

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

DRAIN_LIMIT_S = 120.0


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(DRAIN_LIMIT_S)
    # Kafka answers before every partition has its leader.
    asked = {TopicPartition(topic, index): OffsetSpec.latest() for index in range(partitions)}
    deadline = time.monotonic() + DRAIN_LIMIT_S
    while time.monotonic() < deadline:
        try:
            for future in admin.list_offsets(asked).values():
                future.result(DRAIN_LIMIT_S)
            return
        except KafkaException:
            time.sleep(0.05)
    raise TimeoutError(f"topic {topic} is not served")


def produce_seconds(bootstrap: str, topic: str, codec: str, value: bytes, count: int) -> float:
    """How long until `count` records are acknowledged by acks=all."""
    settings = {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5}
    producer = Producer({**settings, "queue.buffering.max.messages": 500_000})
    producer.list_topics(topic)
    started = time.perf_counter()
    produce, poll = producer.produce, producer.poll
    for number in range(count):
        while True:
            try:
                produce(topic, value, str(number).encode())
                break
            except BufferError:
                poll(0.01)
    left = producer.flush(DRAIN_LIMIT_S)
    if left:
        raise TimeoutError(f"{left} records were not acknowledged")
    return time.perf_counter() - started


def consume_seconds(bootstrap: str, topic: str, partitions: int, count: int) -> float:
    """How long until `count` records were read, from the first record on."""
    # By default librdkafka stops fetching for a second whenever its own queue is full.
    eager = {"queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 1}
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False} | eager
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    seen = 0
    started = time.perf_counter()
    while seen < count:
        # Asked for more than there is, it would wait for the rest.
        messages = consumer.consume(min(10_000, count - seen), 1.0)
        seen += sum(1 for message in messages if message.error() is None)
        if time.perf_counter() - started > DRAIN_LIMIT_S:
            raise TimeoutError(f"only {seen} of {count} records arrived")
    seconds = time.perf_counter() - started
    consumer.close()
    return seconds


def latencies_ms(bootstrap: str, topic: str, count: int) -> tuple[list[float], list[float]]:
    """Acknowledgement and end-to-end times of records sent one at a time."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    acknowledged: list[float] = []
    arrived: list[float] = []
    for number in range(count):
        started = time.perf_counter()
        times: list[float] = []

        def on_delivery(error: object, message: Message, times: list[float] = times) -> None:
            if error is not None:
                raise RuntimeError(str(error))
            times.append(time.perf_counter())

        producer.produce(topic, str(number).encode(), partition=0, on_delivery=on_delivery)
        while not times:
            producer.poll(1.0)
        message = consumer.poll(DRAIN_LIMIT_S)
        ended = time.perf_counter()
        if message is None or message.value() != str(number).encode():
            raise RuntimeError(f"record {number} did not arrive")
        acknowledged.append((times[0] - started) * 1000)
        arrived.append((ended - started) * 1000)
    consumer.close()
    return acknowledged, arrived
