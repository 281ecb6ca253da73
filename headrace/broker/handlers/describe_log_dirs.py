"""DescribeLogDirs: the one data directory, the sizes of its partitions, and the disk's."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from headrace.broker.context import Broker, Call
from headrace.broker.partitions import Partition
from headrace.errors import KafkaError
from headrace.protocol.messages import Message


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    return Message(results=[_log_dir(broker, request)])


def _log_dir(broker: Broker, request: Message) -> Message:
    store = broker.store
    topics: dict[str, list[Message]] = defaultdict(list)
    for partition in _asked(broker, request):
        topics[partition.topic].append(
            Message(partition_index=partition.index, partition_size=partition.log.size_bytes)
        )
    return Message(
        log_dir=str(Path(store.data_dir).absolute()),
        topics=[Message(name=name, partitions=found) for name, found in topics.items()],
        total_bytes=store.filesystem.total_bytes(store.data_dir),
        usable_bytes=store.filesystem.free_bytes(store.data_dir),
    )


def _asked(broker: Broker, request: Message) -> Iterable[Partition]:
    if request.topics is None:
        yield from broker.partitions.all()
        return
    for topic in request.topics:
        for index in topic.partitions:
            try:
                yield broker.partitions.get(topic.topic, index)
            except KafkaError:
                # As in Kafka, a partition that is not here is left out of the answer.
                continue
