"""The registry over a real topic: what is there, what survives, who writes."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from headrace.client.admin import Admin, ConfigKind, NewTopic
from headrace.client.consumer import OFFSET_BEGINNING, Consumer, Received
from headrace.client.librdkafka import TopicPartition
from headrace.client.patience import patiently
from headrace.client.producer import NewRecord, Producer
from headrace.errors import ErrorCode, KafkaError
from headrace.registry.leader import Candidate, Identity, elect
from headrace.registry.records import Noop
from headrace.registry.storage import FENCED, Writer
from headrace.testing import LocalBroker
from headrace.testing.local_registry import LocalRegistry
from tests.registry.tiny_language import TINY_LANGUAGES

pytestmark = pytest.mark.compat

V1_JSON = "application/vnd.schemaregistry.v1+json"
TOPIC = "_schemas"


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as broker:
        yield broker


def registry_on(broker: LocalBroker) -> LocalRegistry:
    return LocalRegistry(broker.bootstrap, languages=TINY_LANGUAGES)


def register(url: str, subject: str, schema: str) -> httpx.Response:
    return httpx.post(
        f"{url}/subjects/{subject}/versions",
        json={"schema": schema},
        headers={"content-type": V1_JSON},
        timeout=30,
    )


def records(bootstrap: str) -> list[tuple[dict[str, Any], Any]]:
    place = TopicPartition(TOPIC, 0)
    found: list[tuple[dict[str, Any], Any]] = []
    with Consumer(bootstrap) as consumer:
        consumer.assign({place: OFFSET_BEGINNING})
        while True:
            for event in consumer.poll(max_records=1_000, timeout_s=10):
                if not isinstance(event, Received):
                    return found
                value = None if event.value is None else json.loads(event.value)
                found.append((json.loads(event.key or b""), value))


def eventually(ask: Callable[[], bool]) -> None:
    """Wait, within the patience of the clients, until it is so."""

    def asked() -> None:
        if not ask():
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "not yet")

    patiently(asked)


def test_what_was_answered_is_in_a_compacted_topic_in_confluents_format(
    broker: LocalBroker,
) -> None:
    with registry_on(broker) as registry:
        assert register(registry.url, "a", "x").json()["id"] == 1
        key = {"keytype": "SCHEMA", "subject": "a", "version": 1, "magic": 1}
        value = {
            "subject": "a",
            "version": 1,
            "id": 1,
            "schemaType": "AVRO",
            "schema": "x",
            "deleted": False,
        }
        assert (key, value) in records(broker.bootstrap)
    admin = Admin(broker.bootstrap)
    configs = {each.name: each.value for each in admin.configs(ConfigKind.TOPIC, TOPIC)}
    assert configs["cleanup.policy"] == "compact"
    with registry_on(broker) as registry:
        assert httpx.get(f"{registry.url}/schemas/ids/1").json()["schema"] == "x"
        assert register(registry.url, "a", "x y?").json()["version"] == 2


def test_bad_records_in_the_topic_are_skipped(broker: LocalBroker) -> None:
    Admin(broker.bootstrap).create_topic(NewTopic(TOPIC, 1, 1, {"cleanup.policy": "compact"}))
    producer = Producer(broker.bootstrap)
    good = b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}'
    for key, value in (
        (b"not json", b"x"),
        (b'{"keytype":"SCHEMA","subject":"b","version":1,"magic":1}', b'{"id":"?"}'),
        (good, b'{"subject":"a","version":1,"id":4,"schema":"x","deleted":false}'),
        (b'{"keytype":"NEWS"}', b"{}"),
    ):
        producer.send(TOPIC, NewRecord(value, key))
    assert producer.flush(10) == 0
    with registry_on(broker) as registry:
        assert httpx.get(f"{registry.url}/subjects").json() == ["a"]
        assert "headrace_registry_skipped_records 3" in httpx.get(f"{registry.url}/metrics").text
        assert register(registry.url, "a", "x y?").json()["id"] == 5


def test_a_topic_that_would_lose_schemas_is_refused(broker: LocalBroker) -> None:
    Admin(broker.bootstrap).create_topic(NewTopic(TOPIC, 1, 1, {"cleanup.policy": "delete"}))
    with pytest.raises(RuntimeError, match=r"cleanup\.policy=delete"):
        registry_on(broker).start()


def test_reads_go_on_while_the_log_is_away_and_writes_recover(broker: LocalBroker) -> None:
    with registry_on(broker) as registry:
        assert register(registry.url, "a", "x").status_code == 200
        broker.stop()
        answer = register(registry.url, "a", "x y?")
        assert answer.status_code == 500
        assert answer.json()["error_code"] in (50001, 50002, 50004)
        assert httpx.get(f"{registry.url}/schemas/ids/1").json()["schema"] == "x"
        assert httpx.get(f"{registry.url}/subjects/a/versions").json() == [1]
        broker.start()
        eventually(lambda: register(registry.url, "a", "x z?").status_code == 200)
        versions = httpx.get(f"{registry.url}/subjects/a/versions").json()
        # The refused write may have been on its way; a client that asks again sees which.
        assert versions in ([1, 2], [1, 2, 3])


def test_two_registries_have_one_writer_and_the_other_takes_over(broker: LocalBroker) -> None:
    with registry_on(broker) as first:
        assert register(first.url, "a", "x").json()["id"] == 1
        with registry_on(broker) as second:
            # The answer comes when the second one can read it too.
            assert register(second.url, "a", "x y?").json()["id"] == 2
            assert httpx.get(f"{second.url}/schemas/ids/2").json()["schema"] == "x y?"
            refused = register(second.url, "a", "z")
            assert (refused.status_code, refused.json()["error_code"]) == (409, 40901)
            assert refused.headers["content-type"] == V1_JSON
            leaders = [
                "headrace_registry_leader 1" in httpx.get(f"{each.url}/metrics").text
                for each in (first, second)
            ]
            assert leaders == [True, False]
            first.stop()
            eventually(lambda: register(second.url, "a", "x z?").status_code == 200)
            assert httpx.get(f"{second.url}/subjects/a/versions").json() == [1, 2, 3]


def test_who_opens_the_writer_fences_who_wrote_before(broker: LocalBroker) -> None:
    Admin(broker.bootstrap).create_topic(NewTopic(TOPIC, 1, 1, {"cleanup.policy": "compact"}))
    old = Writer(broker.bootstrap, TOPIC, "headrace-test")
    new = Writer(broker.bootstrap, TOPIC, "headrace-test")
    try:
        first = old.write([Noop()])
        second = new.write([Noop()])
        assert second > first
        with pytest.raises(KafkaError) as refused:
            old.write([Noop()])
        assert refused.value.code in FENCED
        assert len(records(broker.bootstrap)) == 2
    finally:
        old.close()
        new.close()


def test_a_schema_larger_than_the_log_takes_is_refused(broker: LocalBroker) -> None:
    with registry_on(broker) as registry:
        answer = register(registry.url, "a", " ".join(f"field{n}?" for n in range(200_000)))
        assert (answer.status_code, answer.json()["error_code"]) == (422, 42209)
        assert register(registry.url, "a", "x").json()["id"] == 1


def test_a_thousand_concurrent_registrations(broker: LocalBroker) -> None:
    schemas = [f"f{n % 400}?" for n in range(1_000)]
    with (
        registry_on(broker) as registry,
        httpx.Client(base_url=registry.url, timeout=120) as client,
    ):

        def ask(n: int) -> int:
            answer = client.post(f"/subjects/s{n % 37}/versions", json={"schema": schemas[n]})
            number: int = answer.json()["id"]
            return number

        with ThreadPoolExecutor(32) as pool:
            ids = list(pool.map(ask, range(1_000)))
    by_schema: dict[str, set[int]] = {}
    for schema, number in zip(schemas, ids, strict=True):
        by_schema.setdefault(schema, set()).add(number)
    assert all(len(numbers) == 1 for numbers in by_schema.values())
    assert len(set(ids)) == 400


def candidate(port: int, *, eligible: bool = True, leads: bool = False) -> Candidate:
    return Candidate(f"member-{port}", Identity("h", port), eligible, leads)


def test_who_leads_goes_on_and_else_the_first_address_leads() -> None:
    assert elect([]) is None
    assert elect([candidate(2), candidate(1)]) == candidate(1)
    assert elect([candidate(2, leads=True), candidate(1)]) == candidate(2, leads=True)
    both = [candidate(2, leads=True), candidate(1, leads=True)]
    assert elect(both) == candidate(1, leads=True)
    assert elect([candidate(2, eligible=False)]) is None
