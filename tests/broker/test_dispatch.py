import asyncio
import struct
from importlib.util import find_spec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.dispatch import MIN_PRODUCE
from headrace.broker.exchange import ClientRefused, Pending
from headrace.broker.refusals import refusal
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.apis import APIS
from headrace.protocol.messages import Message, read_request, read_response, write_response
from headrace.protocol.schemas import shape_of
from tests.broker.harness import finished, run

SERVED = [
    (api, version)
    for api in APIS.values()
    for version in range(api.min_version, api.max_version + 1)
    if (api.name, version >= MIN_PRODUCE) != ("produce", False)
]
# Older versions of these have no place for an error, in Kafka as well.
SAYS_NOTHING_BEFORE = {"describe_log_dirs": 3}


def begin(harness, frame):
    view = memoryview(bytearray(frame))
    return harness.dispatcher(harness.connection, view, 0, len(view))


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_every_served_api_has_its_handler(api):
    assert find_spec(f"headrace.broker.handlers.{api.name}") is not None


@pytest.mark.parametrize(
    ("api_key", "version"),
    [(999, 0), (-1, 0), (3, 99), (3, -1), (0, 2), (0, 14), (1, 3), (52, 0), (2, 0)],
)
def test_what_is_not_served_closes_the_connection(api_key, version):
    async def scenario(harness):
        with pytest.raises(ClientRefused, match="not served"):
            begin(harness, struct.pack(">hhih", api_key, version, 1, -1) + b"\0" * 30)

    run(scenario)


@pytest.mark.parametrize("version", [99, -1, 5])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(version):
    async def scenario(harness):
        head, answer = begin(harness, struct.pack(">hhih", 18, version, 3, -1) + b"\0" * 9)
        assert head == b"\0\0\0\3"
        found = read_response(18, 0, b"".join(answer))
        assert found.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(row.api_key, row.min_version, row.max_version) for row in found.api_keys] == [
            (18, 0, 4)
        ]

    run(scenario)


@given(st.binary(max_size=40), st.sampled_from(SERVED))
def test_a_malformed_request_is_refused_and_nothing_else_happens(junk, served):
    api, version = served
    try:
        read_request(api.key, version, junk)
    except ValueError:
        pass
    else:
        return

    async def scenario(harness):
        header = struct.pack(">hhih", api.key, version, 1, -1)
        tags = b"\0" if version >= api.flexible_from else b""
        with pytest.raises(ValueError, match=r".*"):
            begin(harness, header + tags + junk)
        assert not harness.broker.waits.parked

    run(scenario)


@pytest.mark.parametrize("size", range(10))
def test_a_frame_too_short_for_a_header_is_refused(size):
    async def scenario(harness):
        with pytest.raises(ValueError, match="header"):
            begin(harness, b"\0" * size)

    run(scenario)


def test_a_caller_is_known_by_client_id_and_version():
    async def scenario(harness):
        request = Message(client_software_name="a", client_software_version="1")
        for client_id in ("one", "two", "one", None):
            for version in (3, 4):
                answer = await harness.call("api_versions", version, request, client_id=client_id)
                assert answer.error_code == ErrorCode.NONE
        callers = {(call.client_id, call.api_version) for call in harness.connection.calls.values()}
        assert callers == {(name, v) for name in ("one", "two", None) for v in (3, 4)}

    run(scenario)


def test_tagged_fields_in_a_header_are_skipped():
    async def scenario(harness):
        tagged = struct.pack(">hhih", 18, 3, 1, 1) + b"c" + b"\x01\x00\x02hi" + b"\x02a\x021\x00"
        plain = struct.pack(">hhih", 18, 3, 1, 1) + b"c" + b"\x00" + b"\x02a\x021\x00"
        for frame in (plain, tagged, plain):
            begin(harness, frame)

    run(scenario)


@pytest.mark.parametrize(
    "api",
    [api for api in APIS.values() if api.name not in ("produce", "fetch")],
    ids=lambda api: api.name,
)
def test_every_api_can_say_that_it_refuses(api):
    """One element in each array of the request: the refusal must reach each of them."""
    request = _filled(shape_of(api.key, request=True))
    error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "as told")
    answer = refusal(api.key, api.name, request, error)
    first = SAYS_NOTHING_BEFORE.get(api.name, api.min_version)
    for version in range(first, api.max_version + 1):
        written = write_response(api.key, version, answer)
        assert ErrorCode.UNKNOWN_SERVER_ERROR in _codes(read_response(api.key, version, written))


def _filled(shape):
    fields = dict(shape.defaults)
    for name, nested in shape.nested.items():
        if isinstance(fields[name], tuple | type(None)):
            fields[name] = [_filled(nested)]
    for name, value in fields.items():
        if value == () and name not in shape.nested:
            fields[name] = [0] if "partition" in name else ["g"]
    return Message(**fields)


def _codes(message):
    found = set()
    for name, value in message.__dict__.items():
        if name in ("error_code", "partition_error_code"):
            found.add(ErrorCode(value))
        for element in value if isinstance(value, list | tuple) else ():
            if isinstance(element, Message):
                found |= _codes(element)
    return found


async def _wait(how):
    """One thing a handler may wait for, or not."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    match how:
        case "nothing":
            return 0
        case "a turn":
            await asyncio.sleep(0)
            return 0
        case "a value":
            loop.call_soon(future.set_result, 1)
            return await future
        case "a caught error":
            loop.call_soon(future.set_exception, KeyError())
            with pytest.raises(KeyError):
                await future
            return 2
        case "a refusal":
            loop.call_soon(future.set_exception, KafkaError(ErrorCode.NOT_COORDINATOR))
            return await future
        case _:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)


WAITS = ["nothing", "a turn", "a value", "a caught error", "a refusal", "no more"]


@given(st.lists(st.sampled_from(WAITS), max_size=6))
def test_a_handler_answers_the_same_whether_or_not_it_waits(plan):
    async def handle(broker, call, request):
        return Message(error_code=sum([await _wait(how) for how in plan]))

    async def plainly(harness):
        try:
            return (await asyncio.create_task(handle(harness.broker, None, None))).error_code
        except KafkaError as refused:
            return refused.code

    async def scenario(harness):
        expected = await plainly(harness)
        begun = harness.begin("heartbeat", 4, Message(group_id="g"))
        waits = next((how for how in plan if how not in ("nothing",)), "no more") != "no more"
        assert isinstance(begun, Pending) == waits
        answer = await finished(begun) if waits else begun
        assert harness.read("heartbeat", 4, answer).error_code == expected

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.broker.handlers.heartbeat.handle", handle)
        run(scenario)


def test_a_handler_that_waits_when_the_broker_stops_is_let_go_of():
    ended = []

    async def handle(broker, call, request):
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(True)

    async def before_the_task_ran(harness):
        harness.begin("heartbeat", 4, Message(group_id="g"))

    async def while_it_waits(harness):
        harness.begin("heartbeat", 4, Message(group_id="g"))
        await asyncio.sleep(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.broker.handlers.heartbeat.handle", handle)
        run(before_the_task_ran)
        run(while_it_waits)
    assert ended == [True, True]


@pytest.mark.parametrize("waits", [False, True])
def test_an_answer_that_cannot_be_written_closes_the_connection(waits):
    async def handle(broker, call, request):
        if waits:
            await asyncio.sleep(0)
        return Message(no_such_field=1)

    async def scenario(harness):
        with pytest.raises(ClientRefused, match="no_such_field"):
            await harness.call("heartbeat", 4, Message(group_id="g"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.broker.handlers.heartbeat.handle", handle)
        run(scenario)
