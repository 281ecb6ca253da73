import aiokafka.codec as theirs
import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol import compression
from headrace.protocol.compression import (
    CODECS,
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    CompressionFailed,
    compress,
    decompress,
)

payloads = st.binary(max_size=300) | st.builds(
    lambda unit, times: unit * times, st.binary(min_size=1, max_size=9), st.integers(0, 30_000)
)
LIMIT = 1 << 20


@given(st.sampled_from(sorted(CODECS)), payloads)
def test_every_codec_returns_what_it_was_given(codec, payload):
    packed = compress(codec, payload)
    assert decompress(codec, memoryview(packed), max_bytes=LIMIT) == payload


@given(payloads)
def test_the_bound_is_exact(payload):
    for codec in CODECS:
        packed = compress(codec, payload)
        assert decompress(codec, packed, max_bytes=len(payload)) == payload
        if payload:
            with pytest.raises(CompressionFailed):
                decompress(codec, packed, max_bytes=len(payload) - 1)


@given(st.sampled_from([GZIP, SNAPPY, LZ4, ZSTD]), st.binary(max_size=80))
def test_garbage_raises_only_compression_failed(codec, garbage):
    for data in (garbage, compression._XERIAL_HEADER + garbage):
        try:
            assert len(decompress(codec, data, max_bytes=LIMIT)) <= LIMIT
        except CompressionFailed:
            continue


def test_raw_snappy_is_read_too():
    raw = bytes(cramjam.snappy.compress_raw(b"hello" * 9))
    assert decompress(SNAPPY, raw, max_bytes=100) == b"hello" * 9


def test_unknown_codecs_are_refused():
    with pytest.raises(CompressionFailed):
        decompress(5, b"x", max_bytes=10)


def test_lz4_frames_have_the_independent_blocks_java_wants():
    packed = compress(LZ4, bytes(200_000))
    flags = packed[4]
    assert flags & 0x20, "KafkaLZ4BlockInputStream refuses dependent blocks"
    assert compress(LZ4, b"") == compression._LZ4_HEADER + compression._LZ4_END


def test_snappy_is_framed_as_snappy_java_frames_it():
    assert compress(SNAPPY, b"abc").startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")


@given(payloads)
def test_aiokafka_and_we_read_one_another(payload):
    for codec, encode, decode in (
        (GZIP, theirs.gzip_encode, theirs.gzip_decode),
        (SNAPPY, theirs.snappy_encode, theirs.snappy_decode),
        (LZ4, theirs.lz4_encode, theirs.lz4_decode),
        (ZSTD, theirs.zstd_encode, theirs.zstd_decode),
    ):
        assert decompress(codec, encode(payload), max_bytes=LIMIT) == payload
        # aiokafka does not know a snappy stream without a block.
        if payload or codec != SNAPPY:
            assert decode(compress(codec, payload)) == payload


def test_a_snappy_stream_cut_short_is_refused():
    packed = compress(SNAPPY, b"hello" * 100)
    with pytest.raises(CompressionFailed, match="cut short"):
        decompress(SNAPPY, packed[:-1], max_bytes=LIMIT)
    with pytest.raises(CompressionFailed, match="no length"):
        decompress(SNAPPY, packed + b"\x00", max_bytes=LIMIT)
