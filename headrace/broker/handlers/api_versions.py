"""ApiVersions: what is served, and the features that follow from it."""

import re
from typing import NamedTuple

from headrace.broker.context import Broker, Call
from headrace.errors import ErrorCode
from headrace.protocol.apis import APIS
from headrace.protocol.messages import Message

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
# Older versions cannot say that a feature may be off (a minimum of 0), so Kafka leaves it out.
MIN_VERSION_OF_OPTIONAL_FEATURES = 4
MIN_VERSION_WITH_SOFTWARE = 3


class Feature(NamedTuple):
    """A Kafka feature, in force when every API that makes it up is served."""

    name: str
    min_version: int
    max_version: int
    apis: tuple[int, ...]


FEATURES = (
    Feature("metadata.version", 7, 30, ()),
    Feature("group.version", 0, 1, (68, 69)),
    Feature("transaction.version", 0, 2, (22, 24, 26, 28)),
    Feature("share.version", 0, 1, (76, 78, 79)),
)


async def handle(broker: Broker, call: Call, request: Message) -> Message:
    if call.api_version >= MIN_VERSION_WITH_SOFTWARE and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return Message(error_code=ErrorCode.INVALID_REQUEST)
    served = [feature for feature in FEATURES if all(key in APIS for key in feature.apis)]
    shown = [
        feature
        for feature in served
        if feature.min_version or call.api_version >= MIN_VERSION_OF_OPTIONAL_FEATURES
    ]
    return Message(
        error_code=ErrorCode.NONE,
        api_keys=[
            Message(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
            for api in APIS.values()
        ],
        supported_features=[
            Message(
                name=feature.name,
                min_version=feature.min_version,
                max_version=feature.max_version,
            )
            for feature in shown
        ],
        finalized_features_epoch=0,
        finalized_features=[
            Message(
                name=feature.name,
                min_version_level=feature.max_version,
                max_version_level=feature.max_version,
            )
            for feature in served
        ],
    )
