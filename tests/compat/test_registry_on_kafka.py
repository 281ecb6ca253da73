"""The registry over Apache Kafka, as it runs over Headrace."""

import json

import httpx
import pytest

from headrace.testing.apache_kafka import ApacheKafka, missing
from headrace.testing.local_registry import LocalRegistry
from tests.registry.tiny_language import TINY_LANGUAGES

pytestmark = [
    pytest.mark.compat,
    pytest.mark.oracle,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]


def test_schemas_are_kept_and_two_registries_agree_on_apache_kafka() -> None:
    def register(registry: LocalRegistry, subject: str, text: str) -> httpx.Response:
        url = f"{registry.url}/subjects/{subject}/versions"
        return httpx.post(url, json={"schema": text}, timeout=60)

    with ApacheKafka() as kafka:
        with LocalRegistry(kafka.bootstrap, languages=TINY_LANGUAGES) as first:
            assert register(first, "a", "x").json()["id"] == 1
            with LocalRegistry(kafka.bootstrap, languages=TINY_LANGUAGES) as second:
                assert register(second, "a", "x y?").json()["id"] == 2
                first.stop()
                assert register(second, "b", "z").json()["id"] == 3
        with LocalRegistry(kafka.bootstrap, languages=TINY_LANGUAGES) as third:
            found = httpx.get(f"{third.url}/schemas").json()
            assert [(each["subject"], each["id"]) for each in found] == [
                ("a", 1),
                ("a", 2),
                ("b", 3),
            ]
            assert json.loads(httpx.delete(f"{third.url}/subjects/b", timeout=60).text) == [1]
