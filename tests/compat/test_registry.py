"""Confluent's own clients, unmodified, against a registry in a process of its own."""

import importlib.util
import json
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc_tools  # type: ignore[import-untyped]
import httpx
import pytest
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Metadata,
    MetadataProperties,
    Rule,
    RuleKind,
    RuleMode,
    RuleSet,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import (
    MessageField,
    SerializationContext,
    SerializationError,
)
from grpc_tools import protoc

from headrace.testing import LocalBroker
from headrace.testing.registry_process import RegistryProcess

pytestmark = pytest.mark.compat

USER = json.dumps(
    {
        "type": "record",
        "name": "User",
        "namespace": "people",
        "fields": [{"name": "name", "type": "string"}],
    }
)
USER_WITH_AGE = json.dumps(
    {
        "type": "record",
        "name": "User",
        "namespace": "people",
        "fields": [
            {"name": "name", "type": "string"},
            {"name": "age", "type": ["null", "int"], "default": None},
        ],
    }
)
USER_WITH_DUTY = USER_WITH_AGE.replace(', "default": null', "")
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "people",
        "fields": [{"name": "buyer", "type": "people.User"}],
    }
)
not_yet = pytest.mark.xfail(
    reason="the registry has no JSON Schema and no Protobuf yet", raises=SchemaRegistryError
)

JSON_USER = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "User",
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
    }
)
PROTO_PERSON = """syntax = "proto3";
package people;

message Person {
  string name = 1;
}
"""
PROTO_ORDER = """syntax = "proto3";
package people;

import "google/protobuf/timestamp.proto";
import "person.proto";

message Order {
  Person buyer = 1;
  google.protobuf.Timestamp at = 2;

  message Line {
    int32 count = 1;
  }
}
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as broker:
        yield broker


@pytest.fixture(scope="module")
def process(
    broker: LocalBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RegistryProcess]:
    with RegistryProcess(broker.bootstrap, tmp_path_factory.mktemp("registry")) as process:
        yield process


@pytest.fixture
def client(process: RegistryProcess) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": process.url}) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_avro_values_pass_and_evolve(client: SchemaRegistryClient, topic: str) -> None:
    old = AvroSerializer(client, USER)
    new = AvroSerializer(client, USER_WITH_AGE)
    written = [
        old({"name": "ann"}, value_of(topic)),
        new({"name": "bob", "age": 3}, value_of(topic)),
    ]
    read = AvroDeserializer(client, USER_WITH_AGE)
    assert [read(each, value_of(topic)) for each in written] == [
        {"name": "ann", "age": None},
        {"name": "bob", "age": 3},
    ]
    assert client.get_versions(f"{topic}-value") == [1, 2]


def test_avro_uses_the_latest_version_when_told_to(
    client: SchemaRegistryClient, topic: str
) -> None:
    number = client.register_schema(f"{topic}-value", Schema(USER_WITH_AGE, "AVRO"))
    settings = {"auto.register.schemas": False, "use.latest.version": True}
    serialize = AvroSerializer(client, USER, conf=settings)
    data = serialize({"name": "ann", "age": 4}, value_of(topic))
    assert int.from_bytes(data[1:5], "big") == number
    assert AvroDeserializer(client)(data, value_of(topic)) == {"name": "ann", "age": 4}


def test_avro_schemas_refer_to_one_another(client: SchemaRegistryClient, topic: str) -> None:
    client.register_schema(f"{topic}-user", Schema(USER, "AVRO"))
    reference = SchemaReference("people.User", f"{topic}-user", 1)
    order = Schema(ORDER, "AVRO", [reference])
    number = client.register_schema(f"{topic}-value", order)
    settings = {"auto.register.schemas": False, "use.latest.version": True}
    serialize = AvroSerializer(client, order, conf=settings)
    data = serialize({"buyer": {"name": "ann"}}, value_of(topic))
    assert AvroDeserializer(client)(data, value_of(topic)) == {"buyer": {"name": "ann"}}
    assert client.get_referenced_by(f"{topic}-user", 1) == [number]
    with pytest.raises(SchemaRegistryError) as refused:
        client.delete_subject(f"{topic}-user")
    assert refused.value.error_code == 42206


@not_yet
def test_json_values_pass(client: SchemaRegistryClient, topic: str) -> None:
    serialize = JSONSerializer(JSON_USER, client)
    data = serialize({"name": "ann"}, value_of(topic))
    read = JSONDeserializer(JSON_USER, schema_registry_client=client)
    assert read(data, value_of(topic)) == {"name": "ann"}
    assert client.get_latest_version(f"{topic}-value").schema.schema_type == "JSON"
    # The client refuses what the schema does, before anything is written.
    with pytest.raises(Exception, match="name"):
        serialize({"age": 3}, value_of(topic))


@not_yet
def test_json_schemas_refer_to_one_another(client: SchemaRegistryClient, topic: str) -> None:
    client.register_schema(f"{topic}-user", Schema(JSON_USER, "JSON"))
    text = json.dumps(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": "Order",
            "type": "object",
            "properties": {"buyer": {"$ref": "user.json"}},
        }
    )
    order = Schema(text, "JSON", [SchemaReference("user.json", f"{topic}-user", 1)])
    serialize = JSONSerializer(order, client)
    data = serialize({"buyer": {"name": "ann"}}, value_of(topic))
    read = JSONDeserializer(order, schema_registry_client=client)
    assert read(data, value_of(topic)) == {"buyer": {"name": "ann"}}


@pytest.fixture(scope="module")
def messages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModuleType]:
    """The Python modules that protoc makes of the .proto files."""
    directory = tmp_path_factory.mktemp("protos")
    (directory / "person.proto").write_text(PROTO_PERSON)
    (directory / "order.proto").write_text(PROTO_ORDER)
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    arguments = ["protoc", f"-I{directory}", f"-I{well_known}", f"--python_out={directory}"]
    assert protoc.main([*arguments, "person.proto", "order.proto"]) == 0
    found = {}
    for name in ("person_pb2", "order_pb2"):
        spec = importlib.util.spec_from_file_location(name, directory / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        found[name] = module
    return found


@not_yet
def test_protobuf_values_pass_with_their_imports(
    client: SchemaRegistryClient, topic: str, messages: dict[str, ModuleType]
) -> None:
    order = messages["order_pb2"].Order
    settings = {"use.deprecated.format": False}
    serialize = ProtobufSerializer(order, client, settings)
    value = order(buyer={"name": "ann"})
    value.at.FromSeconds(5)
    data = serialize(value, value_of(topic))
    read = ProtobufDeserializer(order, settings, client)
    assert read(data, value_of(topic)) == value
    registered = client.get_latest_version(f"{topic}-value")
    names = [each.name for each in registered.schema.references]
    assert "person.proto" in names
    # A second process registers the same again, and gets the same.
    again = ProtobufSerializer(order, client, settings)
    assert again(value, value_of(topic)) == data


@not_yet
def test_protobuf_uses_the_latest_version_when_told_to(
    client: SchemaRegistryClient, topic: str, messages: dict[str, ModuleType]
) -> None:
    person = messages["person_pb2"].Person
    number = client.register_schema(f"{topic}-value", Schema(PROTO_PERSON, "PROTOBUF"))
    settings = {
        "auto.register.schemas": False,
        "use.latest.version": True,
        "use.deprecated.format": False,
    }
    data = ProtobufSerializer(person, client, settings)(person(name="ann"), value_of(topic))
    assert int.from_bytes(data[1:5], "big") == number
    settings = {"use.deprecated.format": False, "use.latest.version": True}
    assert ProtobufDeserializer(person, settings, client)(data, value_of(topic)).name == "ann"


def test_rules_are_run_by_the_clients_that_read_them_here(
    client: SchemaRegistryClient, topic: str
) -> None:
    from confluent_kafka.schema_registry.rules.cel.cel_executor import CelExecutor

    CelExecutor.register()
    rule = Rule(
        "named", "", RuleKind.CONDITION, RuleMode.WRITE, "CEL", None, None, "message.name != ''",
        None, None, False,
    )  # fmt: skip
    schema = Schema(USER, "AVRO", [], None, RuleSet(None, [rule]))
    client.register_schema(f"{topic}-value", schema)
    settings = {"auto.register.schemas": False, "use.latest.version": True}
    serialize = AvroSerializer(client, USER, conf=settings)
    assert serialize({"name": "ann"}, value_of(topic))
    with pytest.raises(SerializationError):
        serialize({"name": ""}, value_of(topic))


def test_every_call_of_the_client_is_answered(client: SchemaRegistryClient, topic: str) -> None:
    subject = f"{topic}-value"
    first = client.register_schema_full_response(subject, Schema(USER, "AVRO"))
    second = client.register_schema(subject, Schema(USER_WITH_AGE, "AVRO"))
    client.clear_caches()
    assert (
        client.get_schema(first.schema_id).schema_str == Schema(first.schema.schema_str).schema_str
    )
    assert client.get_schema_by_guid(first.guid).schema_type == "AVRO"
    assert sorted(client.get_schema_types()) == ["AVRO"]
    assert subject in client.get_subjects_by_schema_id(second)
    assert (subject, 2) in [(v.subject, v.version) for v in client.get_schema_versions(second)]
    assert client.lookup_schema(subject, Schema(USER, "AVRO")).version == 1
    assert subject in client.get_subjects(subject_prefix=topic)
    assert client.get_latest_version(subject).version == 2
    assert client.get_version(subject, 1).schema_id == first.schema_id
    assert client.test_compatibility(subject, Schema(USER, "AVRO"))
    assert not client.test_compatibility(subject, Schema(USER_WITH_DUTY, "AVRO"), version=1)
    assert not client.test_compatibility_all_versions(subject, Schema('"int"', "AVRO"))
    client.set_compatibility(subject, "FULL_TRANSITIVE")
    assert client.get_compatibility(subject) == "FULL_TRANSITIVE"
    client.set_config(subject, ServerConfig(compatibility=ConfigCompatibilityLevel.NONE))
    assert client.get_config(subject).compatibility_level == "NONE"
    assert client.delete_config(subject).compatibility_level == "NONE"
    assert client.update_mode(subject, "READONLY") == "READONLY"
    assert client.get_mode(subject) == "READONLY"
    assert client.delete_mode(subject) == "READONLY"
    assert client.get_global_mode() == "READWRITE"
    assert client.get_contexts()[0] == "."
    metadata = Metadata(None, MetadataProperties({"major": "2"}), None)
    tagged = client.register_schema(subject, Schema(USER_WITH_AGE, "AVRO", [], metadata))
    assert client.get_latest_with_metadata(subject, {"major": "2"}).schema_id == tagged
    assert client.delete_version(subject, 1) == 1
    assert client.delete_version(subject, 1, permanent=True) == 1
    assert client.delete_subject(subject) == [2, 3]
    assert client.delete_subject(subject, permanent=True) == [2, 3]
    client.clear_caches()
    with pytest.raises(SchemaRegistryError) as missing:
        client.get_latest_version(subject)
    assert (missing.value.http_status_code, missing.value.error_code) == (404, 40401)


def test_an_answered_id_survives_a_kill(broker: LocalBroker, tmp_path: Path) -> None:
    answered: dict[str, int] = {}
    process = RegistryProcess(broker.bootstrap, tmp_path)
    process.start()
    enough = threading.Event()

    def register() -> None:
        with httpx.Client(base_url=process.url, timeout=30) as http:
            for number in range(10_000):
                text = json.dumps({"type": "fixed", "name": f"k{number}", "size": 4})
                try:
                    answer = http.post(
                        f"/subjects/killed-{number % 5}/versions", json={"schema": text}
                    )
                except httpx.HTTPError:
                    return
                answered[text] = answer.json()["id"]
                if number == 30:
                    enough.set()

    httpx.put(f"{process.url}/config", json={"compatibility": "NONE"}, timeout=30)
    writer = threading.Thread(target=register)
    writer.start()
    assert enough.wait(60)
    process.kill()
    writer.join()
    with process:
        for text, number in answered.items():
            found: Any = httpx.get(f"{process.url}/schemas/ids/{number}").json()
            assert json.loads(found["schema"]) == json.loads(text)
        text = json.dumps({"type": "fixed", "name": "after", "size": 4})
        answer = httpx.post(
            f"{process.url}/subjects/after/versions", json={"schema": text}, timeout=60
        )
        assert answer.json()["id"] not in answered.values()
        httpx.delete(f"{process.url}/config", timeout=30)


def test_the_lines_of_confluents_documents_work(process: RegistryProcess, topic: str) -> None:
    kind = {"Content-Type": "application/vnd.schemaregistry.v1+json"}

    def post(path: str, schema: str) -> httpx.Response:
        return httpx.post(f"{process.url}{path}", content=schema, headers=kind, timeout=30)

    string = '{"schema": "{\\"type\\": \\"string\\"}"}'
    number = post(f"/subjects/{topic}-key/versions", string).json()["id"]
    assert post(f"/subjects/{topic}-value/versions", string).json()["id"] == number
    assert httpx.get(f"{process.url}/schemas/ids/{number}").json()["schema"] == '"string"'
    latest = httpx.get(f"{process.url}/subjects/{topic}-value/versions/latest").json()
    assert (latest["version"], latest["schema"]) == (1, '"string"')
    assert post(f"/subjects/{topic}-key", string).json()["version"] == 1
    check = post(f"/compatibility/subjects/{topic}-value/versions/latest", string).json()
    assert check == {"is_compatible": True}
    answer = httpx.delete(f"{process.url}/subjects/{topic}-value/versions/latest")
    assert answer.text == "1"
    bad = post(f"/subjects/{topic}-value/versions", '{"schema": "{\\"type\\": \\"strin\\"}"}')
    assert (bad.status_code, bad.json()["error_code"]) == (422, 42201)
