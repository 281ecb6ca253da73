"""Random histories of commits, transactions and tombstones against a plain model of the log."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.coordination.group import Committer
from headrace.coordination.offsets import Offsets, OffsetToCommit, TopicPartitions
from headrace.testing.group_log import GroupLog

GROUPS, TOPICS, PARTITIONS, PRODUCERS = ("g", "h"), ("t", "u"), (0, 1), (1, 2)

Key = tuple[str, str, int]

groups = st.sampled_from(GROUPS)
partitions = st.tuples(st.sampled_from(TOPICS), st.sampled_from(PARTITIONS))
producers = st.sampled_from(PRODUCERS)
steps = st.one_of(
    st.tuples(st.just("commit"), groups, partitions),
    st.tuples(st.just("pend"), groups, partitions, producers),
    st.tuples(st.just("end"), producers, st.booleans()),
    st.tuples(st.just("delete"), groups, partitions),
    st.tuples(st.just("delete_group"), groups),
    st.tuples(st.just("delete_topic"), st.sampled_from(TOPICS)),
)


class Model:
    """Every commit ever made, in order; the truth is found by looking through all of them."""

    def __init__(self) -> None:
        self.commits: list[tuple[Key, int, int | None]] = []

    def visible(self) -> dict[Key, int]:
        return {key: offset for key, offset, producer in self.commits if producer is None}

    def end(self, producer: int, committed: bool) -> None:
        self.commits = [
            (key, offset, None if owner == producer else owner)
            for key, offset, owner in self.commits
            if committed or owner != producer
        ]

    def forget(self, unwanted: Callable[[Key], bool]) -> None:
        self.commits = [each for each in self.commits if not unwanted(each[0])]


def take(log: GroupLog, model: Model, number: int, step: Any) -> None:
    offsets = log.machine.offsets
    match step:
        case ("commit", group, (topic, index)):
            asked = [OffsetToCommit(topic, index, number)]
            log.commit(offsets.commit(Committer(group), asked, log.now))
            model.commits.append(((group, topic, index), number, None))
        case ("pend", group, (topic, index), producer):
            asked = [OffsetToCommit(topic, index, number)]
            committer = Committer(group, transactional=True)
            log.commit(offsets.commit_transactional(committer, asked, log.now), producer)
            model.commits.append(((group, topic, index), number, producer))
        case ("end", producer, committed):
            log.end_transaction(producer, committed=committed)
            model.end(producer, committed)
        case ("delete", group, (topic, index)):
            if log.machine.groups.find(group):
                log.commit(offsets.delete(group, [TopicPartitions(topic, [index])]))
                model.forget(lambda key: key == (group, topic, index))
        case ("delete_group", group):
            _, decision = log.machine.delete_groups([group])
            log.run(lambda: decision)
            model.forget(lambda key: key[0] == group)
        case ("delete_topic", topic):
            log.run(lambda: log.machine.delete_topics([topic]))
            model.forget(lambda key: key[1] == topic)


def flat(offsets: Offsets) -> dict[Key, int]:
    return {
        (group, *partition): committed.offset
        for group, found in offsets.snapshot().items()
        for partition, committed in found.items()
    }


@given(st.lists(steps, max_size=40))
def test_offsets_are_what_the_log_says(history):
    log, model = GroupLog(), Model()
    for number, step in enumerate(history):
        take(log, model, number, step)
        assert flat(log.machine.offsets) == model.visible()
        pending = {key for key, _, producer in model.commits if producer is not None}
        for group in GROUPS:
            assert all(log.machine.groups.find(key[0]) for key in model.visible())
            for topic in log.machine.offsets.fetch(
                group, [TopicPartitions(each, PARTITIONS) for each in TOPICS], require_stable=True
            ):
                for found in topic.partitions:
                    unstable = (group, topic.topic, found.partition) in pending
                    assert bool(found.error) == unstable
    again = log.reloaded()
    assert again.offsets.snapshot() == log.machine.offsets.snapshot()
    assert again.offsets.open_producers == log.machine.offsets.open_producers
