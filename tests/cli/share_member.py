"""A member of a share group, by hand: no client of ours reads as one."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4

from headrace.client.wire import Api, Connection, CoordinatorKind, Wire, refuse
from headrace.protocol.messages import Message

ACCEPT = 1
LEAVE = -1
LIMIT_S = 30.0


class ShareMember:
    """Joins, takes records and accepts them."""

    def __init__(self, wire: Wire, group: str, topic: str) -> None:
        self._group = group
        self._topic = topic
        self._coordinator = wire.coordinator(CoordinatorKind.GROUP, group)[1]
        self._member_id = str(uuid4())
        self._member_epoch = 0
        self._session_epoch = 0
        self._leader: Connection = wire.any()
        self._topic_id: UUID = _topic_id(wire, topic)

    @property
    def member_id(self) -> str:
        return self._member_id

    @property
    def epoch(self) -> int:
        return self._member_epoch

    def join(self, partitions: int) -> None:
        """Beat until so many partitions are assigned."""
        assigned = 0
        deadline = time.monotonic() + LIMIT_S
        topics: list[str] | None = [self._topic]
        while assigned < partitions:
            assert time.monotonic() < deadline, f"{assigned} partitions are assigned"
            answer = self._beat(self._member_epoch, topics)
            topics = None
            self._member_epoch = answer.member_epoch
            if answer.assignment is not None:
                assigned = sum(len(row.partitions) for row in answer.assignment.topic_partitions)

    def leave(self) -> None:
        self._beat(LEAVE, None)

    def touch(self, partitions: Iterable[int]) -> None:
        """Begin to read partitions, at their end."""
        for partition in partitions:
            assert self._fetch(partition, 1) == []

    def accept(self, partition: int, count: int) -> None:
        """Take so many records of a partition and acknowledge them."""
        deadline = time.monotonic() + LIMIT_S
        taken = 0
        while taken < count:
            assert time.monotonic() < deadline, f"{taken} records were taken"
            for first, last in self._fetch(partition, count - taken):
                self._acknowledge(partition, first, last)
                taken += last - first + 1

    def _beat(self, epoch: int, topics: list[str] | None) -> Message:
        answer = self._coordinator.call(
            Api.SHARE_GROUP_HEARTBEAT,
            Message(
                group_id=self._group,
                member_id=self._member_id,
                member_epoch=epoch,
                rack_id=None,
                subscribed_topic_names=topics,
            ),
        )
        refuse(answer.error_code, f"heartbeat of {self._group}")
        return answer

    def _fetch(self, partition: int, max_records: int) -> list[tuple[int, int]]:
        answer = self._leader.call(
            Api.SHARE_FETCH,
            self._request(
                partition,
                [],
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=1 << 20,
                max_records=max_records,
                batch_size=max_records,
                share_acquire_mode=1,
                forgotten_topics_data=[],
            ),
        )
        refuse(answer.error_code, f"share fetch of {self._group}")
        self._session_epoch += 1
        return [
            (range_.first_offset, range_.last_offset)
            for topic in answer.responses
            for row in topic.partitions
            for range_ in row.acquired_records
        ]

    def _acknowledge(self, partition: int, first: int, last: int) -> None:
        accepted = Message(first_offset=first, last_offset=last, acknowledge_types=[ACCEPT])
        answer = self._leader.call(Api.SHARE_ACKNOWLEDGE, self._request(partition, [accepted]))
        refuse(answer.error_code, f"share acknowledgement of {self._group}")
        self._session_epoch += 1
        refuse(answer.responses[0].partitions[0].error_code, f"acknowledging {first} to {last}")

    def _request(self, partition: int, batches: list[Message], **fields: Any) -> Message:
        row = Message(partition_index=partition, acknowledgement_batches=batches)
        return Message(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self._session_epoch,
            is_renew_ack=False,
            topics=[Message(topic_id=self._topic_id, partitions=[row])],
            **fields,
        )


@contextmanager
def share_member(
    bootstrap: str, group: str, topic: str, *, partitions: int
) -> Iterator[ShareMember]:
    """A member with all the topic's partitions."""
    with Wire(bootstrap) as wire:
        member = ShareMember(wire, group, topic)
        member.join(partitions)
        yield member
        member.leave()


def _topic_id(wire: Wire, topic: str) -> UUID:
    request = Message(topics=[Message(name=topic)], allow_auto_topic_creation=False)
    (found,) = wire.any().call(Api.METADATA, request).topics
    refuse(found.error_code, topic)
    topic_id: UUID = found.topic_id
    return topic_id
