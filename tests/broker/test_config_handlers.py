"""How settings of topics and brokers are described and altered, over the wire's own bytes."""

import pytest

from headrace.broker.topics import Topics
from headrace.coordination.metadata_records import BROKER_RESOURCE, ConfigRecord
from headrace.errors import ErrorCode
from headrace.protocol.messages import Message
from headrace.testing.filesystems import MemoryFilesystem, nothing
from tests.broker import harness as harnesses

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)


def on_broker(scenario, **settings):
    async def opened(harness):
        await Topics.open(harness.broker)
        await harness.create("orders", 2, retention_ms="5000")
        await scenario(Admin(harness))

    harnesses.run(opened, **settings)


class Admin:
    """The three APIs of settings, as a client would use them."""

    def __init__(self, harness):
        self.harness = harness

    async def describe(self, kind, name, keys=None, version=4, **flags):
        resource = Message(resource_type=kind, resource_name=name, configuration_keys=keys)
        request = Message(resources=[resource], **{"include_synonyms": True, **flags})
        (result,) = (await self.harness.call("describe_configs", version, request)).results
        if result.error_code:
            return ErrorCode(result.error_code)
        return {config.name: config for config in result.configs}

    async def value(self, kind, name, key):
        config = (await self.describe(kind, name, [key]))[key]
        return config.value, config.config_source

    async def edit(self, kind, name, *edits, dry=False):
        configs = [
            Message(name=key, config_operation=operation, value=value)
            for key, operation, value in edits
        ]
        return await self._alter("incremental_alter_configs", 1, kind, name, configs, dry)

    async def replace(self, kind, name, values, dry=False):
        configs = [Message(name=key, value=value) for key, value in values.items()]
        return await self._alter("alter_configs", 2, kind, name, configs, dry)

    async def _alter(self, api, version, kind, name, configs, dry):
        resource = Message(resource_type=kind, resource_name=name, configs=configs)
        request = Message(resources=[resource], validate_only=dry)
        (answer,) = (await self.harness.call(api, version, request)).responses
        self.message = answer.error_message
        return ErrorCode(answer.error_code)


def test_topic_settings_say_where_they_come_from():
    async def scenario(admin):
        found = await admin.describe(TOPIC, "orders", include_documentation=True)
        own = found["retention.ms"]
        assert (own.value, own.config_source, own.config_type) == ("5000", 1, 5)
        assert (own.synonyms[0].name, own.synonyms[0].source) == ("retention.ms", 1)
        broker_wide = found["segment.bytes"]
        assert (broker_wide.value, broker_wide.config_source) == ("2097152", 4)
        assert [(s.name, s.value, s.source) for s in broker_wide.synonyms] == [
            ("log.segment.bytes", "2097152", 4),
            ("log.segment.bytes", str(1 << 30), 5),
        ]
        assert all(config.documentation for config in found.values())
        bare = await admin.describe(TOPIC, "orders", ["retention.ms", "x"], include_synonyms=False)
        assert list(bare) == ["retention.ms"]
        assert bare["retention.ms"].synonyms == []
        assert bare["retention.ms"].documentation is None

    on_broker(scenario, log_segment_bytes=str(2 << 20))


@pytest.mark.parametrize("version", range(1, 5))
def test_every_version_describes(version):
    async def scenario(admin):
        found = await admin.describe(TOPIC, "orders", version=version)
        assert found["retention.ms"].value == "5000"

    on_broker(scenario)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "77", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (9, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_described_is_refused_as_kafka_refuses_it(kind, name, code):
    async def scenario(admin):
        assert await admin.describe(kind, name) is code

    on_broker(scenario)


def test_single_settings_are_set_deleted_and_lists_edited():
    async def scenario(admin):
        assert await admin.edit(TOPIC, "orders", ("retention.ms", SET, "7000")) is ErrorCode.NONE
        assert await admin.value(TOPIC, "orders", "retention.ms") == ("7000", 1)
        assert admin.harness.partition("orders", 1).settings.retention_ms == 7000
        await admin.edit(TOPIC, "orders", ("retention.ms", DELETE, None))
        assert await admin.value(TOPIC, "orders", "retention.ms") == ("604800000", 5)

        for operation, value, expected in (
            (APPEND, "compact", "delete,compact"),
            (APPEND, "compact", "delete,compact"),
            (SUBTRACT, "delete", "compact"),
        ):
            await admin.edit(TOPIC, "orders", ("cleanup.policy", operation, value))
            assert await admin.value(TOPIC, "orders", "cleanup.policy") == (expected, 1)
        assert admin.harness.partition("orders").settings.compacted

    on_broker(scenario)


@pytest.mark.parametrize(
    ("edit", "code", "hint"),
    [
        (("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG, "soon"),
        (("retention.mss", SET, "1"), ErrorCode.INVALID_CONFIG, "retention.ms?"),
        (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST, "Null value"),
        (("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG, "not LIST"),
        (("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST, "operation"),
        (("cleanup.policy", APPEND, "shred"), ErrorCode.INVALID_CONFIG, "shred"),
    ],
)
def test_a_bad_edit_is_refused_with_the_reason_and_changes_nothing(edit, code, hint):
    async def scenario(admin):
        before = admin.harness.broker.catalog.topic("orders")
        assert await admin.edit(TOPIC, "orders", edit) is code
        assert hint in admin.message
        assert admin.harness.broker.catalog.topic("orders") == before

    on_broker(scenario)


def test_alter_configs_leaves_only_what_it_names():
    async def scenario(admin):
        assert await admin.replace(TOPIC, "orders", {"segment.ms": "60000"}) is ErrorCode.NONE
        assert admin.harness.broker.catalog.topic("orders").configs == {"segment.ms": "60000"}
        assert await admin.replace(TOPIC, "orders", {"nope": "1"}) is ErrorCode.INVALID_CONFIG
        code = await admin.replace(TOPIC, "missing", {"segment.ms": "60000"})
        assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    on_broker(scenario)


def test_validate_only_checks_and_changes_nothing():
    async def scenario(admin):
        assert await admin.edit(TOPIC, "orders", ("segment.ms", SET, "1000"), dry=True) == 0
        code = await admin.edit(TOPIC, "orders", ("segment.ms", SET, "x"), dry=True)
        assert code is ErrorCode.INVALID_CONFIG
        assert await admin.replace(TOPIC, "orders", {}, dry=True) is ErrorCode.NONE
        assert admin.harness.broker.catalog.topic("orders").configs == {"retention.ms": "5000"}

    on_broker(scenario)


def test_a_resource_or_a_setting_named_twice_is_refused():
    async def scenario(admin):
        twice = [("segment.ms", SET, "1000"), ("segment.ms", SET, "2000")]
        assert await admin.edit(TOPIC, "orders", *twice) is ErrorCode.INVALID_REQUEST
        config = Message(name="segment.ms", config_operation=SET, value="1000")
        resource = Message(resource_type=TOPIC, resource_name="orders", configs=[config])
        request = Message(resources=[resource, resource])
        answer = await admin.harness.call("incremental_alter_configs", 1, request)
        codes = [each.error_code for each in answer.responses]
        assert codes == [ErrorCode.INVALID_REQUEST] * 2

    on_broker(scenario)


def test_broker_settings_reach_topics_that_say_nothing_themselves():
    async def scenario(admin):
        assert await admin.edit(BROKER, "", ("log.segment.ms", SET, "1")) == 40
        assert await admin.edit(BROKER, "", ("log.roll.ms", SET, "9000")) is ErrorCode.NONE
        assert await admin.value(TOPIC, "orders", "segment.ms") == ("9000", 3)
        assert await admin.edit(BROKER, "1", ("log.roll.ms", SET, "8000")) is ErrorCode.NONE
        assert await admin.value(TOPIC, "orders", "segment.ms") == ("8000", 2)
        assert await admin.value(BROKER, "1", "log.roll.ms") == ("8000", 2)
        assert await admin.value(BROKER, "", "log.roll.ms") == ("9000", 3)
        assert admin.harness.partition("orders").settings.segment_ms == 8000
        assert admin.harness.partition("orders").settings.retention_ms == 5000
        await admin.edit(BROKER, "1", ("log.roll.ms", DELETE, None))
        assert admin.harness.partition("orders").settings.segment_ms == 9000

    on_broker(scenario)


@pytest.mark.parametrize(
    ("name", "edit", "code"),
    [
        ("1", ("num.partitions", SET, "3"), ErrorCode.INVALID_REQUEST),
        ("1", ("log.roll.ms", SET, "x"), ErrorCode.INVALID_CONFIG),
        ("1", ("no.such.setting", SET, "x"), ErrorCode.INVALID_CONFIG),
        ("77", ("log.roll.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        ("x", ("log.roll.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_broker_setting_that_cannot_change_is_refused(name, edit, code):
    async def scenario(admin):
        assert await admin.edit(BROKER, name, edit) is code
        assert not admin.harness.broker.catalog.names_with_configs(BROKER_RESOURCE)

    on_broker(scenario)


def test_settings_of_another_version_are_left_out_and_do_no_harm(caplog):
    async def scenario(admin):
        broker = admin.harness.broker
        for kind, name in ((TOPIC, "orders"), (BROKER, ""), (BROKER, "1")):
            broker.catalog.replay(ConfigRecord(kind, name, "from.the.future", "1"))
        await admin.edit(BROKER, "", ("log.roll.ms", SET, "9000"))
        assert admin.harness.partition("orders").settings.segment_ms == 9000
        assert "from.the.future" not in await admin.describe(TOPIC, "orders")
        assert "from.the.future" not in await admin.describe(BROKER, "1")
        assert await admin.edit(TOPIC, "orders", ("retention.ms", SET, "6000")) is ErrorCode.NONE
        assert await admin.value(TOPIC, "orders", "retention.ms") == ("6000", 1)

    on_broker(scenario)
    assert "left out" in caplog.text


def test_dynamic_broker_settings_survive_a_restart():
    async def scenario(admin):
        await admin.edit(BROKER, "", ("log.roll.ms", SET, "9000"))
        survivors.append(admin.harness.filesystem)

    async def after(harness):
        await Topics.open(harness.broker)
        assert harness.partition("orders").settings.segment_ms == 9000

    survivors: list[MemoryFilesystem] = []
    on_broker(scenario)
    filesystem = survivors[0].survivors(nothing)
    harnesses.run(after, filesystem=filesystem)
