"""The layout of record batches of format 2: fields, flags, the record itself.

 0  base_offset             int64     outside the CRC: stamped by the broker
 8  batch_length            int32     bytes after this field
12  partition_leader_epoch  int32     outside the CRC: stamped by the broker
16  magic                   int8      2
17  crc                     uint32    CRC-32C of everything after it
   21  attributes              int16     see the flags below
23  last_offset_delta       int32
27  base_timestamp          int64
35  max_timestamp           int64
43  producer_id             int64
51  producer_epoch          int16
53  base_sequence           int32
57  record_count            int32
61  records                 length-prefixed; compressed as one block when a codec is set
"""

import struct
from typing import Final, NamedTuple

MAGIC: Final = 2
HEADER_BYTES: Final = 61
LENGTH_OVERHEAD: Final = 12
NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
MAX_DECOMPRESSED_BYTES: Final = 128 * 1024 * 1024

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

CONTROL_ABORT: Final = 0
CONTROL_COMMIT: Final = 1

HEADER = struct.Struct(">qiibIhiqqqhii")
LENGTH_AND_MAGIC = struct.Struct(">8xi4xb")
OFFSET = struct.Struct(">q")
EPOCH = struct.Struct(">i")
CRC = struct.Struct(">I")
# What a producer stamp rewrites inside the CRC: attributes and max_timestamp.
ATTRIBUTES = struct.Struct(">h")
TIMESTAMP = struct.Struct(">q")
CONTROL_KEY = struct.Struct(">hh")
CONTROL_VALUE = struct.Struct(">hi")
EPOCH_POSITION = 12
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
MAX_TIMESTAMP_POSITION = 35
SEQUENCE_WRAP = 1 << 31

Headers = tuple[tuple[str, bytes | None], ...]


class CorruptBatch(ValueError):
    """The bytes are no record batch."""


class UnsupportedMagic(CorruptBatch):
    """An entry of the formats 0 or 1, which Kafka 4 no longer takes, or of one not yet known."""


class Record(NamedTuple):
    """One record. A negative offset, when writing, means the one after the record before."""

    offset: int = -1
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
