"""Which partition of an internal topic a group or a transactional id belongs to, as in Kafka."""

_MASK = 0xFFFFFFFF
_SIGN = 1 << 31


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 units, as a signed 32-bit integer."""
    units = text.encode("utf-16-be", "surrogatepass")
    found = 0
    for position in range(0, len(units), 2):
        found = (31 * found + (units[position] << 8) + units[position + 1]) & _MASK
    return found - (1 << 32) if found & _SIGN else found


def partition_of(name: str, partitions: int) -> int:
    hashed = abs(java_hash(name))
    # Java's smallest integer has no absolute value; Kafka takes 0 for it.
    return 0 if hashed == _SIGN else hashed % partitions
