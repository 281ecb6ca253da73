import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.network_settings import Listener
from headrace.broker.properties import parse_properties
from headrace.broker.settings import (
    BrokerSettings,
    described,
    effective,
    read_properties,
    validate_dynamic,
)
from headrace.errors import SettingError
from headrace.settings import Dynamic, Kind, Layers, Source, load, rows, show

KRAFT = """
# The runbook's file
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
controller.listener.names=CONTROLLER
log.dirs=/var/lib/kafka
num.partitions=12
default.replication.factor=3
min.insync.replicas=2
num.io.threads=16
num.network.threads=8
num.replica.fetchers=4
replica.lag.time.max.ms=30000
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.bytes=-1
log.cleanup.policy=delete
log.cleaner.min.cleanable.ratio=0.5
log.cleaner.min.compaction.lag.ms=0
unclean.leader.election.enable=false
compression.type=producer
"""


def loaded(**texts: str) -> BrokerSettings:
    return load(BrokerSettings, {name.replace("_", "."): text for name, text in texts.items()})


def test_a_kraft_server_properties_starts_with_one_warning_per_wish_not_in_force():
    broker = load(BrokerSettings, parse_properties(KRAFT))
    assert broker.endpoints == (Listener("PLAINTEXT", "", 9092),)
    assert (broker.num_partitions, broker.data_dir, broker.node_id) == (12, "/var/lib/kafka", 1)
    assert len(broker.warnings()) == 2
    assert "default.replication.factor=3" in broker.warnings()[0]
    assert "min.insync.replicas=2" in broker.warnings()[1]
    assert broker.topic_defaults.min_insync_replicas == 1


def test_settings_without_effect_are_noted_with_the_reason():
    notes = load(BrokerSettings, parse_properties(KRAFT)).notes()
    assert any(note.startswith("num.io.threads: ") and "event loop" in note for note in notes)


@pytest.mark.parametrize(
    "name",
    [
        "zookeeper.connect",
        "zookeeper.session.timeout.ms",
        "listener.name.internal.ssl.keystore.location",
        "inter.broker.protocol.version",
        "ssl.keystore.password",
        "leader.replication.throttled.rate",
    ],
)
def test_names_of_older_or_larger_kafkas_are_taken(name):
    assert load(BrokerSettings, {name: "3"}).notes()


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(SettingError, match=r"did you mean log\.retention\.hours"):
        load(BrokerSettings, {"log.retention.hour": "1"})


@pytest.mark.parametrize(
    ("texts", "name"),
    [
        ({"node.id": "1", "broker.id": "2"}, "node.id"),
        ({"listeners": "PLAINTEXT://:9092,PLAINTEXT://:9093"}, "listeners"),
        ({"listeners": "SSL://:9092"}, "listeners"),
        ({"listeners": "OTHER://:9092"}, "listeners"),
        ({"listeners": "PLAINTEXT//:9092"}, "listeners"),
        ({"listeners": "PLAINTEXT://:70000"}, "listeners"),
        ({"listeners": ""}, "listeners"),
        ({"controller.listener.names": "PLAINTEXT"}, "listeners"),
        ({"advertised.listeners": "OTHER://h:1"}, "advertised.listeners"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "advertised.listeners"),
        ({"log.dirs": ""}, "log.dirs"),
        ({"log.retention.ms": "0"}, "log.retention.ms"),
        ({"queued.max.request.bytes": "5"}, "queued.max.request.bytes"),
        ({"group.min.session.timeout.ms": "9000000"}, "group.min.session.timeout.ms"),
        (
            {"group.consumer.session.timeout.ms": "1000"},
            "group.consumer.min.session.timeout.ms",
        ),
        (
            {
                "group.consumer.heartbeat.interval.ms": "15000",
                "group.consumer.min.session.timeout.ms": "1",
                "group.consumer.session.timeout.ms": "15000",
            },
            "group.consumer.heartbeat.interval.ms",
        ),
        ({"single.node.replication": "maybe"}, "single.node.replication"),
        ({"num.io.threads": "0"}, "num.io.threads"),
        ({"process.roles": "broker,king"}, "process.roles"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(texts, name):
    with pytest.raises(SettingError) as error:
        load(BrokerSettings, texts)
    assert error.value.name == name


def test_broker_id_is_the_old_name_of_node_id():
    assert loaded(broker_id="7").node_id == 7
    assert loaded(node_id="8").broker_id == 8


def test_listeners_may_be_ipv6_and_advertised_elsewhere():
    broker = loaded(
        listeners="plaintext://[::1]:9092", advertised_listeners="PLAINTEXT://h.example:19092"
    )
    assert broker.endpoints == (Listener("PLAINTEXT", "::1", 9092),)
    assert broker.advertised_endpoints == (Listener("PLAINTEXT", "h.example", 19092),)
    assert loaded(listeners="PLAINTEXT://h:1").advertised_endpoints == (
        Listener("PLAINTEXT", "h", 1),
    )


def test_a_listener_by_another_name_may_speak_plaintext():
    broker = load(
        BrokerSettings,
        {
            "listeners": "LAN://:1,WAN://:2",
            "listener.security.protocol.map": "LAN:PLAINTEXT, WAN:PLAINTEXT",
        },
    )
    assert [it.name for it in broker.endpoints] == ["LAN", "WAN"]


def test_every_row_has_a_sentence_and_a_default_it_would_itself_take():
    for row in rows(BrokerSettings):
        assert row.doc.endswith("."), row.name
        if row.default is not None and row.default != ():
            assert row.parse(show(row.default)) == row.default, row.name


def test_no_name_has_two_rows():
    names = [row.name for row in rows(BrokerSettings)]
    assert len(names) == len(set(names))


def test_a_broker_describes_every_kafka_setting_but_the_internal_ones():
    found = {it.name: it for it in described(Layers(static={"num.partitions": "3"}))}
    # Kafka 4.3.1 describes 340 of its own.
    assert len(found) == 340 + 9
    assert found["num.partitions"].source is Source.STATIC_BROKER_CONFIG
    assert [s.value for s in found["num.partitions"].synonyms] == ["3", "1"]
    assert found["num.partitions"].read_only
    assert not found["log.retention.ms"].read_only
    assert found["log.retention.ms"].value is None


def test_a_secret_is_never_described():
    layers = Layers(static={"ssl.keystore.password": "hunter2"})
    secret = next(it for it in described(layers) if it.name == "ssl.keystore.password")
    assert secret.sensitive
    assert secret.kind is Kind.PASSWORD
    assert secret.value is None
    assert [s.value for s in secret.synonyms] == [None]


def test_the_defaults_of_all_brokers_are_what_was_set_for_all():
    layers = Layers(
        dynamic_broker={"log.segment.bytes": "2097152"},
        dynamic_default={"log.segment.bytes": "4194304"},
        static={"num.partitions": "3"},
    )
    [it] = described(layers, per_broker=False)
    assert it.name == "log.segment.bytes"
    assert [(s.value, s.source) for s in it.synonyms] == [
        ("4194304", Source.DYNAMIC_DEFAULT_BROKER_CONFIG)
    ]
    assert effective(layers).topic_defaults.segment_bytes == 2_097_152


def test_a_running_broker_takes_only_what_kafka_lets_it():
    taken = validate_dynamic({"log.segment.bytes": "2097152"}, Layers(), cluster_wide=True)
    assert taken.topic_defaults.segment_bytes == 2_097_152
    with pytest.raises(SettingError, match="while the broker runs"):
        validate_dynamic({"num.partitions": "2"}, Layers(), cluster_wide=False)
    with pytest.raises(SettingError, match="one broker"):
        validate_dynamic({"listeners": "PLAINTEXT://:1"}, Layers(), cluster_wide=True)
    with pytest.raises(SettingError):
        validate_dynamic({"log.segment.bytes": "5"}, Layers(), cluster_wide=False)


def test_modes_are_kafkas():
    modes = {row.name: row.dynamic for row in rows(BrokerSettings)}
    assert modes["listeners"] is Dynamic.PER_BROKER
    assert modes["message.max.bytes"] is Dynamic.CLUSTER_WIDE
    assert modes["log.retention.hours"] is Dynamic.READ_ONLY


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1\nb : 2\r\nc 3\rd", {"a": "1", "b": "2", "c": "3", "d": ""}),
        ("# no\n! no\n\n   a = b c ", {"a": "b c "}),
        ("a=1,\\\n   2,\\\n\t3", {"a": "1,2,3"}),
        ("a=x\\\\\nb=2", {"a": "x\\", "b": "2"}),
        ("a\\=b\\:c=d=e:f", {"a=b:c": "d=e:f"}),
        ("a=\\u00e9\\t\\q", {"a": "é\tq"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        ("a=last\\", {"a": "last"}),
        ("", {}),
    ],
)
def test_properties_are_read_as_java_reads_them(text, values):
    assert parse_properties(text) == values


@given(st.dictionaries(st.text("ab.é", min_size=1), st.text("xy =:\\#!\n\té")))
def test_escaped_properties_survive(values):
    def escaped(text: str) -> str:
        return "".join(
            f"\\u{ord(letter):04x}" if not letter.isalnum() else letter for letter in text
        )

    text = "\n".join(f"{escaped(name)}={escaped(value)}" for name, value in values.items())
    assert parse_properties(text) == values


def test_a_file_in_latin_1_is_read_too(tmp_path):
    path = tmp_path / "server.properties"
    path.write_bytes("broker.rack=Z\u00fcrich".encode("latin-1"))
    assert read_properties(path) == {"broker.rack": "Zürich"}
