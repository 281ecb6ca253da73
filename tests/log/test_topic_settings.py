import gc

import pytest

from headrace.errors import SettingError
from headrace.log.settings import (
    DEFAULTS,
    TopicSettings,
    defaults_from,
    described,
    validate_overrides,
)
from headrace.settings import Layers, Source, rows


class Broker:
    topic_defaults = DEFAULTS


# What Apache Kafka 4.3.1 says to CreateTopics with each of these.
REFUSED = [
    ("cleanup.policy", "delete,,compact"),
    ("cleanup.policy", "Delete"),
    ("cleanup.policy", "none"),
    ("compression.type", "none"),
    ("compression.type", "GZIP"),
    ("compression.type", ""),
    ("segment.bytes", "1048575"),
    ("segment.bytes", "1e7"),
    ("segment.bytes", "2147483648"),
    ("segment.bytes", ""),
    ("retention.ms", "-2"),
    ("min.cleanable.dirty.ratio", "1.1"),
    ("preallocate", "yes"),
    ("message.timestamp.type", "createtime"),
    ("compression.gzip.level", "0"),
    ("compression.lz4.level", "18"),
    ("min.insync.replicas", "0"),
    ("remote.storage.enable", "true"),
    ("local.retention.ms", "-3"),
    ("leader.replication.throttled.replicas", "x"),
    ("leader.replication.throttled.replicas", "*,0:1"),
    ("leader.replication.throttled.replicas", "0:1:2"),
    ("flush.ms", "-1"),
    ("foo.bar", "1"),
    ("message.format.version", "3.0"),
    ("message.downconversion.enable", "true"),
    ("max.compaction.lag.ms", "0"),
    ("segment.ms", "0"),
    ("segment.jitter.ms", "-1"),
]
TAKEN = [
    ("cleanup.policy", ""),
    ("cleanup.policy", "delete,delete"),
    ("cleanup.policy", "compact, delete"),
    ("segment.bytes", " 1048576 "),
    ("segment.bytes", "+1048576"),
    ("retention.ms", "0"),
    ("retention.bytes", "-5"),
    ("preallocate", "TRUE"),
    ("compression.gzip.level", "-1"),
    ("min.insync.replicas", "3"),
    ("remote.log.copy.disable", "true"),
    ("local.retention.ms", "99999999999"),
    ("leader.replication.throttled.replicas", "*"),
    ("leader.replication.throttled.replicas", "0:1, 1:2"),
    ("leader.replication.throttled.replicas", ""),
    ("internal.segment.bytes", "1024"),
]


@pytest.mark.parametrize(("name", "text"), REFUSED)
def test_what_kafka_refuses_is_refused(name, text):
    with pytest.raises(SettingError) as error:
        validate_overrides({name: text})
    assert error.value.name == name


@pytest.mark.parametrize(("name", "text"), TAKEN)
def test_what_kafka_takes_is_taken(name, text):
    validate_overrides({name: text})


def test_compaction_lags_must_not_cross():
    with pytest.raises(SettingError, match=r"10 is more than max\.compaction\.lag\.ms \(5\)"):
        validate_overrides({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})


def test_an_override_without_a_value_is_refused():
    with pytest.raises(SettingError, match="must have a value"):
        validate_overrides({"segment.ms": None})


def test_topics_that_agree_share_one_object():
    one = TopicSettings.resolve(Broker(), {"segment.ms": "5", "retention.ms": "9"})
    two = TopicSettings.resolve(Broker(), {"retention.ms": "9", "segment.ms": "5"})
    assert one is two
    assert (one.segment_ms, one.retention_ms) == (5, 9)
    assert TopicSettings.resolve(Broker(), {}) is DEFAULTS


def test_settings_no_topic_has_any_more_are_forgotten():
    from headrace.log.settings import _SHARED

    gc.collect()
    before = len(_SHARED)
    kept = TopicSettings.resolve(Broker(), {"segment.ms": "123456"})
    assert len(_SHARED) == before + 1
    del kept
    gc.collect()
    assert len(_SHARED) == before


@pytest.mark.parametrize(
    ("texts", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "7"}, 7),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finest_unit_of_retention_wins(texts, retention_ms):
    assert defaults_from(texts).retention_ms == retention_ms


def test_a_broker_wide_wish_for_replicas_does_not_refuse_every_write():
    assert defaults_from({"min.insync.replicas": "2"}).min_insync_replicas == 1
    assert validate_overrides({"min.insync.replicas": "2"}).min_insync_replicas == 2


def test_the_default_is_to_sync_within_a_second():
    assert DEFAULTS.flush_ms == 1000
    assert DEFAULTS.write_caching is False


def answers(overrides, layers):
    return {it.name: it for it in described(overrides, layers)}


def test_a_topics_own_value_comes_first_and_names_its_fallbacks():
    it = answers({"segment.ms": "7"}, Layers(static={"log.roll.ms": "9"}))["segment.ms"]
    assert (it.value, it.source, it.is_default) == ("7", Source.DYNAMIC_TOPIC_CONFIG, False)
    assert [(s.name, s.value, s.source) for s in it.synonyms] == [
        ("segment.ms", "7", Source.DYNAMIC_TOPIC_CONFIG),
        ("log.roll.ms", "9", Source.STATIC_BROKER_CONFIG),
        ("log.roll.hours", "168", Source.DEFAULT_CONFIG),
    ]


def test_a_default_in_another_unit_is_not_named_just_as_in_kafka():
    it = answers({}, Layers(static={"log.retention.hours": "24"}))["retention.ms"]
    assert (it.value, it.synonyms, it.source) == ("86400000", (), Source.DEFAULT_CONFIG)


def test_a_topic_takes_what_the_broker_was_told_on_the_fly():
    layers = Layers(
        dynamic_default={"log.segment.bytes": "2097152"}, static={"log.segment.bytes": "4194304"}
    )
    it = answers({}, layers)["segment.bytes"]
    assert (it.value, it.source) == ("2097152", Source.DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert [s.value for s in it.synonyms] == ["2097152", "4194304", "1073741824"]


def test_every_described_setting_is_writable_and_documented_and_internal_ones_are_not_shown():
    found = answers({"internal.segment.bytes": "99"}, Layers())
    assert "internal.segment.bytes" not in found
    assert len(found) == len(rows(TopicSettings)) - 1
    assert all(it.doc and not it.read_only and not it.sensitive for it in found.values())


def test_only_the_names_asked_for_are_described():
    assert [it.name for it in described({}, Layers(), ["segment.ms", "nonsense"])] == ["segment.ms"]


def test_small_segments_for_tests_go_round_the_lower_bound():
    assert validate_overrides({"internal.segment.bytes": "99"}).roll_bytes == 99
    assert DEFAULTS.roll_bytes == 1 << 30
