"""Which partition a key belongs to, as Kafka's Java client decides it."""

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Kafka's murmur2, as a signed 32-bit integer."""
    length = len(key)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(key[position : position + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if length != whole:
        h = (h ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


def partition_for(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions
