from hypothesis import given
from hypothesis import strategies as st

from headrace.testing.filesystems import MemoryFilesystem
from headrace.testing.logs import batch, open_log, small_segments

shapes = st.lists(
    st.tuples(st.integers(1, 5), st.one_of(st.integers(0, 300), st.just(9000))),
    min_size=1,
    max_size=30,
)


def segment_of(batches):
    log = open_log(MemoryFilesystem(), settings=small_segments(10**6, index_interval_bytes=10**5))
    for count, size in batches:
        log.append(batch(*[b"x" * size] * count))
    return log.segments[0]


@given(shapes, st.integers(0, 160))
def test_the_quick_search_finds_what_the_careful_walk_finds(batches, offset):
    segment = segment_of(batches)
    quick = segment.locate(offset)
    segment.trusted_from = segment.size
    assert segment.locate(offset) == quick
    assert (quick is None) == (offset >= segment.next_offset)


@given(shapes, st.integers(0, 200_000), st.data())
def test_the_quick_boundary_is_the_careful_walks(batches, limit, data):
    segment = segment_of(batches)
    starts = [position for position, _batch in segment.headers(0)]
    start = data.draw(st.sampled_from(starts))
    limit += start
    quick = segment.boundary(start, limit)
    segment.trusted_from = segment.size
    assert segment.boundary(start, limit) == quick
    assert quick in [*starts, segment.size]
    assert quick <= max(limit, start)
