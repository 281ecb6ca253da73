"""FindCoordinator: which node looks after a group, a transactional id or a share partition."""

from typing import Any

from headrace.broker.context import Broker, Call
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message

GROUP, TRANSACTION, SHARE = 0, 1, 2
SHARE_SINCE = 6
BATCHED_SINCE = 4


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    if call.api_version >= BATCHED_SINCE:
        keys = request.coordinator_keys
        found = [await _find(broker, call, request.key_type, key) for key in keys]
        return Message(
            coordinators=[
                Message(key=key, **fields) for key, fields in zip(keys, found, strict=True)
            ]
        )
    fields = await _find(broker, call, request.key_type, request.key)
    # Before batching, Kafka names the error even where there is none.
    return Message(error_message=fields["error_code"].name, **fields)


async def _find(broker: Broker, call: Call, key_type: int, key: str) -> dict[str, Any]:
    try:
        _check(call, key_type, key)
        if key_type == GROUP:
            # Made here, so that the client need not ask again as it must with Kafka.
            await broker.groups.shard_of(key)
        elif key_type == SHARE:
            await broker.shares.ready()
    except KafkaError as refusal:
        return {"error_code": refusal.code, "node_id": -1, "host": "", "port": -1}
    host, port = broker.endpoint(call.listener)
    return {
        "error_code": ErrorCode.NONE,
        "node_id": broker.node_id,
        "host": host,
        "port": port,
    }


def _check(call: Call, key_type: int, key: str) -> None:
    if key_type not in (GROUP, TRANSACTION, SHARE):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"no coordinator of type {key_type}")
    if key_type == SHARE and (call.api_version < SHARE_SINCE or key.count(":") < 2):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key} is no share partition")
