"""The compression codecs of record batches, in the framings of Kafka's Java client."""

import mmap
import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import cramjam

from headrace.protocol.primitives import Buffer

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

CODECS: Mapping[int, str] = MappingProxyType(
    {NONE: "none", GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}
)
CODEC_IDS: Mapping[str, int] = MappingProxyType({name: codec for codec, name in CODECS.items()})

_UINT32_BE = struct.Struct(">I")
_UINT32_LE = struct.Struct("<I")

# snappy-java's stream: a 16-byte header, then blocks of (big-endian length, raw snappy).
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * 1024

# Kafka's LZ4 frame header: independent blocks of 64 KB, no checksums but the header's own, 0x82.
# cramjam's frames have dependent blocks, which the Java client refuses: the frame is built here.
_LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_STORED = 0x80000000
_LZ4_END = b"\x00\x00\x00\x00"


class CompressionFailed(ValueError):
    """The data cannot be decompressed, or would become larger than allowed."""


def compress(codec: int, data: Buffer) -> bytes:
    return _COMPRESSORS[codec](data)


def decompress(codec: int, data: Buffer, *, max_bytes: int) -> bytes:
    if codec == NONE:
        if len(data) > max_bytes:
            raise CompressionFailed(f"{len(data)} bytes, {max_bytes} are allowed")
        return bytes(data)
    if codec == SNAPPY:
        return _snappy_decompress(data, max_bytes)
    into = _DECOMPRESSORS.get(codec)
    if into is None:
        raise CompressionFailed(f"codec {codec} is unknown")
    # A page of a private mapping exists once written: a bound that is not reached costs nothing.
    with mmap.mmap(-1, max(max_bytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as output:
        try:
            size = into(data, output)
        except cramjam.DecompressionError as error:
            raise CompressionFailed(
                f"{CODECS[codec]} data is damaged or larger than {max_bytes} bytes: {error}"
            ) from error
        if size > max_bytes:
            raise CompressionFailed(f"{CODECS[codec]} data is larger than {max_bytes} bytes")
        return output[:size]


def _snappy_compress(data: Buffer) -> bytes:
    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        out += _UINT32_BE.pack(len(block))
        out += block
    return bytes(out)


def _snappy_decompress(data: Buffer, max_bytes: int) -> bytes:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _snappy_block(view, max_bytes)
    out = bytearray()
    position = len(_XERIAL_HEADER)
    while position < len(view):
        if position + 4 > len(view):
            raise CompressionFailed("a snappy block has no length")
        start = position + 4
        position = start + _UINT32_BE.unpack_from(view, position)[0]
        if position > len(view):
            raise CompressionFailed("a snappy block is cut short")
        out += _snappy_block(view[start:position], max_bytes - len(out))
    return bytes(out)


def _snappy_block(block: memoryview, max_bytes: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > max_bytes:
            raise CompressionFailed(f"snappy data is larger than {max_bytes} bytes")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CompressionFailed(f"snappy data is damaged: {error}") from error


def _lz4_compress(data: Buffer) -> bytes:
    view = memoryview(data)
    out = bytearray(_LZ4_HEADER)
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        raw = view[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(raw, store_size=False))
        if len(block) < len(raw):
            out += _UINT32_LE.pack(len(block))
            out += block
        else:
            out += _UINT32_LE.pack(len(raw) | _LZ4_STORED)
            out += raw
    out += _LZ4_END
    return bytes(out)


def _gzip_compress(data: Buffer) -> bytes:
    return bytes(cramjam.gzip.compress(data))


def _zstd_compress(data: Buffer) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=3))


_COMPRESSORS: Mapping[int, Callable[[Buffer], bytes]] = {
    NONE: bytes,
    GZIP: _gzip_compress,
    SNAPPY: _snappy_compress,
    LZ4: _lz4_compress,
    ZSTD: _zstd_compress,
}
_DECOMPRESSORS: Mapping[int, Callable[[Buffer, mmap.mmap], int]] = {
    GZIP: cramjam.gzip.decompress_into,
    LZ4: cramjam.lz4.decompress_into,
    ZSTD: cramjam.zstd.decompress_into,
}
