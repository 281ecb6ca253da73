"""DescribeCluster: this one node, which is its own controller."""

from headrace.broker.context import Broker, Call
from headrace.broker.operations import CLUSTER_OPERATIONS, NOT_ASKED
from headrace.errors import ErrorCode, KafkaError
from headrace.protocol.messages import Message

BROKERS, CONTROLLERS = 1, 2


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    if request.endpoint_type == CONTROLLERS:
        raise KafkaError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type "
            "CONTROLLER",
        )
    if request.endpoint_type != BROKERS:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            f"Unsupported endpoint type {request.endpoint_type}",
        )
    host, port = broker.endpoint(call.listener)
    asked = request.include_cluster_authorized_operations
    return Message(
        endpoint_type=BROKERS,
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=[
            Message(
                broker_id=broker.node_id,
                host=host,
                port=port,
                rack=broker.settings.broker_rack,
            )
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS if asked else NOT_ASKED,
    )
