import io
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_writer

from headrace.protocol.apis import APIS, is_flexible
from headrace.protocol.frame import (
    Framer,
    MalformedRequest,
    framed,
    frames,
    read_header,
    request_header,
    response_header,
)

SERVED = [
    (api.key, version)
    for api in APIS.values()
    for version in range(api.min_version, api.max_version + 1)
    # kio has no Produce before 3, which Kafka refuses too.
    if (api.key, version) not in ((0, 0), (0, 1), (0, 2))
]


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_rows_say_what_kio_knows(api):
    assert api_key_map[api.key] == api.name
    known = schema_name_map[api.name]
    for version in range(max(api.min_version, min(known)), api.max_version + 1):
        assert is_flexible(api.key, version) == load_request_schema(api.key, version).__flexible__
        assert api.serves(version)
    assert not api.serves(api.max_version + 1)
    assert not api.serves(api.min_version - 1)


@pytest.mark.parametrize(("api_key", "version"), SERVED)
def test_headers_are_kios_headers(api_key, version):
    header: Any = load_request_schema(api_key, version).__header_schema__
    for client_id in (None, "", "rdkafka"):
        out = io.BytesIO()
        entity_writer(header)(
            out,
            header(
                request_api_key=api_key,
                request_api_version=version,
                correlation_id=77,
                client_id=client_id,
            ),
        )
        theirs = out.getvalue()
        ours = request_header(
            api_key, version, 77, client_id, flexible=is_flexible(api_key, version)
        )
        assert ours == theirs
        buffer = memoryview(b"xx" + theirs + b"body")
        read = read_header(buffer, 2, len(buffer))
        assert read == (api_key, version, 77, client_id, 2 + len(theirs))
    response: Any = load_response_schema(api_key, version).__header_schema__
    out = io.BytesIO()
    entity_writer(response)(out, response(correlation_id=-5))
    assert response_header(api_key, version, -5) == out.getvalue()


def test_tagged_fields_in_a_header_are_skipped():
    header = request_header(3, 12, 1, "c", flexible=True)[:-1] + b"\x01\x05\x02ab"
    assert read_header(header, 0, len(header)).body_position == len(header)


def test_unknown_apis_have_a_readable_header():
    header = request_header(999, 3, 1, "c", flexible=False)
    assert read_header(header, 0, len(header)).api_key == 999


@pytest.mark.parametrize(
    "header",
    [
        b"",
        bytes(9),
        struct.pack(">hhih", 3, 1, 1, -2),
        struct.pack(">hhih", 3, 1, 1, 5) + b"abcd",
        struct.pack(">hhih", 3, 1, 1, 2) + b"\xff\xff",
        struct.pack(">hhih", 3, 12, 1, -1),
        struct.pack(">hhih", 3, 12, 1, -1) + b"\xff\xff\xff\xff\x0f",
    ],
)
def test_senseless_headers_are_refused(header):
    # Bytes past the end must not be looked at.
    buffer = header + b"\x00" * 20
    with pytest.raises(MalformedRequest):
        read_header(buffer, 0, len(header))


@given(st.binary(max_size=40))
def test_random_headers_raise_only_malformed(garbage):
    try:
        header = read_header(garbage, 0, len(garbage))
    except MalformedRequest:
        return
    assert 10 <= header.body_position <= len(garbage)


@given(st.lists(st.binary(max_size=20), max_size=6), st.lists(st.integers(1, 30), max_size=20))
def test_frames_come_out_whole_however_they_arrive(bodies, cuts):
    stream = b"".join(framed(body[:3], body[3:]) for body in bodies)
    framer = Framer()
    received = []
    start = 0
    for size in [*cuts, len(stream)]:
        received += framer.feed(stream[start : start + size])
        start += size
    assert received == bodies


@pytest.mark.parametrize("size", [-1, -(2**31), 101, 2**31 - 1])
def test_senseless_frame_sizes_are_refused(size):
    with pytest.raises(MalformedRequest):
        Framer(max_frame=100).feed(struct.pack(">i", size))
    assert list(frames(struct.pack(">i", 100), 0, 4, max_frame=100)) == []
