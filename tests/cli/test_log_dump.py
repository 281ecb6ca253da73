import errno
import json
import os
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.batch_writer import write_batch
from headrace.protocol.records import Record
from tests.cli.command_line import CommandLine

headrace = CommandLine("127.0.0.1:1")
NAME = f"{0:020}.log"
# What comes before is the base offset, the length, the leader's epoch and the magic number, which
# a checksum does not cover: a broker stamps them.
CHECKSUM_POSITION = 17
RECORDS = [
    Record(0, 1_705_276_800_000, b"k", b'{"a":1}', (("x", b"y"),)),
    Record(1, 1_705_276_800_500, b"k", None, ()),
]


def batch(base_offset: int = 0) -> bytearray:
    return write_batch(
        [record._replace(offset=base_offset + record.offset) for record in RECORDS],
        base_offset=base_offset,
    )


def test_batches_and_records_are_printed_as_kafka_prints_them(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(batch() + batch(2))
    title, first, record, tombstone, *rest = headrace.ok(
        "log", "dump", str(tmp_path), "--records"
    ).lines
    assert title == f"Dumping {tmp_path}/{NAME}"
    assert first.startswith(
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 lastSequence: -1"
    )
    assert first.endswith("isvalid: true")
    assert record == (
        "| offset: 0 CreateTime: 1705276800000 keySize: 1 valueSize: 7 sequence: -1 "
        'headerKeys: [x] key: k payload: {"a":1}'
    )
    assert "valueSize: -1" in tombstone
    assert len(rest) == 3


def test_a_segment_a_partition_and_a_data_folder_can_be_named(tmp_path: Path) -> None:
    for partition in range(2):
        folder = tmp_path / f"orders-{partition}"
        folder.mkdir()
        (folder / NAME).write_bytes(batch())
    segment = str(tmp_path / "orders-1" / NAME)
    assert "1 segments, 1 batches, 2 records" in headrace.ok("log", "dump", segment).err
    assert "2 segments, 2 batches, 4 records" in headrace.ok("log", "dump", str(tmp_path)).err


def test_json_has_one_object_per_line(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(batch())
    lines = headrace.ok("log", "dump", str(tmp_path), "--records", "--json").lines
    found = [json.loads(line) for line in lines]
    assert [entry.get("baseOffset", entry.get("offset")) for entry in found] == [0, 0, 1]
    assert found[0]["isvalid"] is True


@given(st.data())
def test_a_flipped_bit_anywhere_under_the_checksum_is_found(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = batch() + batch(2)
    first = len(batch())
    at = data.draw(st.integers(CHECKSUM_POSITION, first - 1))
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    folder = tmp_path_factory.mktemp("flipped")
    (folder / NAME).write_bytes(content)
    finished = headrace("log", "dump", str(folder), "--verify-only")
    assert finished.code == 1
    assert f"problem: {folder}/{NAME} at byte 0: " in finished.out


@given(st.integers(1, len(batch()) - 1))
def test_a_torn_tail_is_found_wherever_it_is_cut(
    tmp_path_factory: pytest.TempPathFactory, kept: int
) -> None:
    folder = tmp_path_factory.mktemp("torn")
    (folder / NAME).write_bytes(batch() + batch(2)[:kept])
    finished = headrace("log", "dump", str(folder), "--verify-only")
    assert finished.code == 1
    assert f"at byte {len(batch())}: " in finished.out


def test_an_index_that_points_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(batch() + batch(2))
    index = tmp_path / NAME.replace(".log", ".index")
    index.write_bytes((3).to_bytes(4, "big") + len(batch()).to_bytes(4, "big"))
    assert headrace("log", "dump", str(tmp_path)).code == 0
    index.write_bytes((3).to_bytes(4, "big") + (7).to_bytes(4, "big"))
    finished = headrace("log", "dump", str(tmp_path))
    assert finished.code == 1
    assert f"problem: {index} at byte 0: " in finished.out


def test_a_place_without_segments_is_an_error(tmp_path: Path) -> None:
    empty = headrace("log", "dump", str(tmp_path))
    assert empty.code == 1
    assert "holds no segment" in empty.err
    missing = headrace("log", "dump", str(tmp_path / "gone"))
    assert missing.code == 1
    assert missing.err.count("\n") == 1


def test_files_that_may_only_be_read_are_dumped(tmp_path: Path) -> None:
    for number, content in enumerate((batch(), batch(2))):
        (tmp_path / f"{2 * number:020}.log").write_bytes(content)
        (tmp_path / f"{2 * number:020}.index").write_bytes(bytes(8))
    really_open = os.open

    def read_only(path: str, flags: int, *rest: int) -> int:
        # What the kernel says of a read-only disk, to every user and to root as well.
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return really_open(path, flags, *rest)

    with mock.patch("os.open", read_only):
        finished = headrace("log", "dump", str(tmp_path))
    assert "2 segments, 2 batches, 4 records" in finished.err
