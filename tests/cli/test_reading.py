from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.reading import Remaining, Start
from headrace.client.librdkafka import TopicPartition

PLACES = [TopicPartition("t", index) for index in range(3)]
lengths = st.tuples(*(st.integers(0, 6) for _ in PLACES))


@given(lengths, lengths)
def test_reading_to_the_end_takes_what_was_there_and_nothing_later(
    there: tuple[int, ...], later: tuple[int, ...]
) -> None:
    remaining = Remaining(dict.fromkeys(PLACES, 0), dict(zip(PLACES, there, strict=True)))
    taken: dict[TopicPartition, list[int]] = {place: [] for place in PLACES}
    for place, first, more in zip(PLACES, there, later, strict=True):
        for offset in range(first + more):
            if remaining.wants(place, offset):
                taken[place].append(offset)
    assert not remaining
    assert [taken[place] for place in PLACES] == [list(range(count)) for count in there]


def test_a_partition_whose_last_offsets_hold_no_record_ends_at_its_end() -> None:
    remaining = Remaining({PLACES[0]: 0}, {PLACES[0]: 5})
    assert remaining.wants(PLACES[0], 2)
    assert remaining
    remaining.at_end(PLACES[0])
    assert not remaining


def test_a_partition_that_starts_at_its_end_is_done_before_it_begins() -> None:
    assert not Remaining({PLACES[0]: 5}, {PLACES[0]: 5})


def test_starts_are_counted_so_that_two_can_be_refused() -> None:
    assert Start().given == 0
    assert Start(from_beginning=True, offset=0, time_ms=0).given == 3


def test_a_record_beyond_the_end_is_left_out_even_if_those_before_it_are_gone() -> None:
    remaining = Remaining({PLACES[0]: 0}, {PLACES[0]: 5})
    assert not remaining.wants(PLACES[0], 5)
    assert not remaining
