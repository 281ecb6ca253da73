"""Names of Kafka's server.properties that are taken, checked and shown, but change nothing here."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from headrace.settings import (
    PARSERS,
    Check,
    Dynamic,
    Importance,
    Kind,
    Row,
    at_least,
    between,
    list_of,
    one_of,
)

# One line each: name, type, default (- is none), importance, update mode, rule.
_TIERED = """
follower.fetch.last.tiered.offset.enable BOOLEAN false MEDIUM cluster-wide
remote.fetch.max.wait.ms INT 500 MEDIUM cluster-wide >=1
remote.list.offsets.request.timeout.ms LONG 30000 MEDIUM cluster-wide >=1
remote.log.index.file.cache.total.size.bytes LONG 1073741824 LOW cluster-wide >=1
remote.log.index.file.cache.ttl.ms LONG 900000 LOW internal >=-1
remote.log.manager.copier.thread.pool.size INT 10 MEDIUM cluster-wide >=1
remote.log.manager.copy.max.bytes.per.second LONG 9223372036854775807 MEDIUM cluster-wide >=1
remote.log.manager.copy.quota.window.num INT 11 MEDIUM read-only >=1
remote.log.manager.copy.quota.window.size.seconds INT 1 MEDIUM read-only >=1
remote.log.manager.expiration.thread.pool.size INT 10 MEDIUM cluster-wide >=1
remote.log.manager.fetch.max.bytes.per.second LONG 9223372036854775807 MEDIUM cluster-wide >=1
remote.log.manager.fetch.quota.window.num INT 11 MEDIUM read-only >=1
remote.log.manager.fetch.quota.window.size.seconds INT 1 MEDIUM read-only >=1
remote.log.manager.follower.thread.pool.size INT 2 MEDIUM cluster-wide >=1
remote.log.manager.task.interval.ms LONG 30000 LOW read-only >=1
remote.log.manager.task.retry.backoff.max.ms LONG 30000 LOW internal >=1
remote.log.manager.task.retry.backoff.ms LONG 500 LOW internal >=1
remote.log.manager.task.retry.jitter DOUBLE 0.2 LOW internal 0..0.5
remote.log.manager.thread.pool.size INT 2 MEDIUM read-only >=1
remote.log.metadata.custom.metadata.max.bytes INT 128 LOW read-only >=0
remote.log.metadata.manager.class.name STRING - MEDIUM read-only
remote.log.metadata.manager.class.path STRING - MEDIUM read-only
remote.log.metadata.manager.impl.prefix STRING rlmm.config. MEDIUM read-only
remote.log.metadata.manager.listener.name STRING - MEDIUM read-only
remote.log.reader.max.pending.tasks INT 100 MEDIUM read-only >=1
remote.log.reader.threads INT 10 MEDIUM cluster-wide >=1
remote.log.storage.manager.class.name STRING - MEDIUM read-only
remote.log.storage.manager.class.path STRING - MEDIUM read-only
remote.log.storage.manager.impl.prefix STRING rsm.config. MEDIUM read-only
remote.log.storage.system.enable BOOLEAN false MEDIUM read-only
"""
_TLS = """
security.providers STRING - LOW read-only
ssl.allow.dn.changes BOOLEAN false LOW read-only
ssl.allow.san.changes BOOLEAN false LOW read-only
ssl.cipher.suites LIST "" MEDIUM per-broker
ssl.client.auth STRING none MEDIUM per-broker required|requested|none
ssl.enabled.protocols LIST TLSv1.2,TLSv1.3 MEDIUM per-broker
ssl.endpoint.identification.algorithm STRING https LOW per-broker
ssl.engine.factory.class CLASS - LOW per-broker
ssl.key.password PASSWORD - MEDIUM per-broker
ssl.keymanager.algorithm STRING SunX509 MEDIUM per-broker
ssl.keystore.certificate.chain PASSWORD - MEDIUM per-broker
ssl.keystore.key PASSWORD - MEDIUM per-broker
ssl.keystore.location STRING - MEDIUM per-broker
ssl.keystore.password PASSWORD - MEDIUM per-broker
ssl.keystore.type STRING JKS MEDIUM per-broker
ssl.principal.mapping.rules STRING DEFAULT LOW read-only
ssl.protocol STRING TLSv1.3 MEDIUM per-broker
ssl.provider STRING - MEDIUM per-broker
ssl.secure.random.implementation STRING - LOW per-broker
ssl.trustmanager.algorithm STRING PKIX MEDIUM per-broker
ssl.truststore.certificates PASSWORD - MEDIUM per-broker
ssl.truststore.location STRING - MEDIUM per-broker
ssl.truststore.password PASSWORD - MEDIUM per-broker
ssl.truststore.type STRING JKS MEDIUM per-broker
"""
_SASL = """
connection.failed.authentication.delay.ms INT 100 LOW read-only >=0
connections.max.reauth.ms LONG 0 MEDIUM read-only
delegation.token.expiry.check.interval.ms LONG 3600000 LOW read-only >=1
delegation.token.expiry.time.ms LONG 86400000 MEDIUM read-only >=1
delegation.token.max.lifetime.ms LONG 604800000 MEDIUM read-only >=1
delegation.token.secret.key PASSWORD - MEDIUM read-only
principal.builder.class CLASS - MEDIUM per-broker
sasl.client.callback.handler.class CLASS - MEDIUM read-only
sasl.enabled.mechanisms LIST GSSAPI MEDIUM per-broker
sasl.jaas.config PASSWORD - MEDIUM per-broker
sasl.kerberos.kinit.cmd STRING /usr/bin/kinit MEDIUM per-broker
sasl.kerberos.min.time.before.relogin LONG 60000 MEDIUM per-broker
sasl.kerberos.principal.to.local.rules LIST DEFAULT MEDIUM per-broker
sasl.kerberos.service.name STRING - MEDIUM per-broker
sasl.kerberos.ticket.renew.jitter DOUBLE 0.05 MEDIUM per-broker
sasl.kerberos.ticket.renew.window.factor DOUBLE 0.8 MEDIUM per-broker
sasl.login.callback.handler.class CLASS - MEDIUM read-only
sasl.login.class CLASS - MEDIUM read-only
sasl.login.connect.timeout.ms INT - LOW read-only
sasl.login.read.timeout.ms INT - LOW read-only
sasl.login.refresh.buffer.seconds SHORT 300 MEDIUM per-broker
sasl.login.refresh.min.period.seconds SHORT 60 MEDIUM per-broker
sasl.login.refresh.window.factor DOUBLE 0.8 MEDIUM per-broker
sasl.login.refresh.window.jitter DOUBLE 0.05 MEDIUM per-broker
sasl.login.retry.backoff.max.ms LONG 10000 LOW read-only
sasl.login.retry.backoff.ms LONG 100 LOW read-only
sasl.mechanism.controller.protocol STRING GSSAPI HIGH read-only
sasl.mechanism.inter.broker.protocol STRING GSSAPI MEDIUM per-broker
sasl.oauthbearer.assertion.algorithm STRING RS256 MEDIUM read-only ES256|RS256
sasl.oauthbearer.assertion.claim.aud STRING - MEDIUM read-only
sasl.oauthbearer.assertion.claim.exp.seconds INT 300 LOW read-only 0..86400
sasl.oauthbearer.assertion.claim.iss STRING - MEDIUM read-only
sasl.oauthbearer.assertion.claim.jti.include BOOLEAN false MEDIUM read-only
sasl.oauthbearer.assertion.claim.nbf.seconds INT 60 LOW read-only 0..3600
sasl.oauthbearer.assertion.claim.sub STRING - MEDIUM read-only
sasl.oauthbearer.assertion.file STRING - MEDIUM read-only
sasl.oauthbearer.assertion.private.key.file STRING - MEDIUM read-only
sasl.oauthbearer.assertion.private.key.passphrase PASSWORD - MEDIUM read-only
sasl.oauthbearer.assertion.template.file STRING - MEDIUM read-only
sasl.oauthbearer.client.credentials.client.id STRING - MEDIUM read-only
sasl.oauthbearer.client.credentials.client.secret PASSWORD - MEDIUM read-only
sasl.oauthbearer.clock.skew.seconds INT 30 LOW read-only
sasl.oauthbearer.expected.audience LIST "" HIGH read-only
sasl.oauthbearer.expected.issuer STRING - HIGH read-only
sasl.oauthbearer.jwks.endpoint.refresh.ms LONG 3600000 LOW read-only
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms LONG 10000 LOW read-only
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms LONG 100 LOW read-only
sasl.oauthbearer.jwks.endpoint.url STRING - MEDIUM read-only
sasl.oauthbearer.jwt.retriever.class CLASS - MEDIUM read-only
sasl.oauthbearer.jwt.validator.class CLASS - MEDIUM read-only
sasl.oauthbearer.scope STRING - MEDIUM read-only
sasl.oauthbearer.scope.claim.name STRING scope LOW read-only
sasl.oauthbearer.sub.claim.name STRING sub LOW read-only
sasl.oauthbearer.token.endpoint.url STRING - MEDIUM read-only
sasl.server.callback.handler.class CLASS - MEDIUM read-only
sasl.server.max.receive.size INT 524288 MEDIUM read-only
"""
_STREAMS = """
group.streams.assignment.interval.ms INT 1000 MEDIUM cluster-wide >=0
group.streams.heartbeat.interval.ms INT 5000 MEDIUM read-only >=1
group.streams.initial.rebalance.delay.ms INT 3000 MEDIUM read-only >=0
group.streams.max.assignment.interval.ms INT 15000 MEDIUM read-only >=0
group.streams.max.heartbeat.interval.ms INT 15000 MEDIUM read-only >=1
group.streams.max.session.timeout.ms INT 60000 MEDIUM read-only >=1
group.streams.max.size INT 2147483647 MEDIUM read-only >=1
group.streams.max.standby.replicas INT 2 MEDIUM read-only >=0
group.streams.min.assignment.interval.ms INT 0 MEDIUM read-only >=0
group.streams.min.heartbeat.interval.ms INT 5000 MEDIUM read-only >=1
group.streams.min.session.timeout.ms INT 45000 MEDIUM read-only >=1
group.streams.num.standby.replicas INT 0 MEDIUM read-only >=0
group.streams.session.timeout.ms INT 45000 MEDIUM read-only >=1
"""
_REPLICATION = """
alter.log.dirs.replication.quota.window.num INT 11 LOW read-only >=1
alter.log.dirs.replication.quota.window.size.seconds INT 1 LOW read-only >=1
auto.leader.rebalance.enable BOOLEAN true HIGH read-only
inter.broker.listener.name STRING - MEDIUM read-only
leader.imbalance.check.interval.seconds LONG 300 HIGH read-only >=1
num.replica.alter.log.dirs.threads INT - HIGH read-only
num.replica.fetchers INT 1 HIGH cluster-wide >=1
offsets.topic.replication.factor SHORT 3 HIGH read-only >=1
replica.fetch.backoff.ms INT 1000 MEDIUM read-only >=0
replica.fetch.max.bytes INT 1048576 MEDIUM read-only >=0
replica.fetch.min.bytes INT 1 HIGH read-only
replica.fetch.response.max.bytes INT 10485760 MEDIUM read-only >=0
replica.fetch.wait.max.ms INT 500 HIGH read-only
replica.high.watermark.checkpoint.interval.ms LONG 5000 HIGH read-only
replica.lag.time.max.ms LONG 30000 HIGH read-only
replica.selector.class STRING - MEDIUM read-only
replica.socket.receive.buffer.bytes INT 65536 HIGH read-only
replica.socket.timeout.ms INT 30000 HIGH read-only
replication.quota.window.num INT 11 LOW read-only >=1
replication.quota.window.size.seconds INT 1 LOW read-only >=1
security.inter.broker.protocol STRING PLAINTEXT MEDIUM read-only
share.coordinator.state.topic.min.isr SHORT 2 HIGH read-only >=1
share.coordinator.state.topic.replication.factor SHORT 3 HIGH read-only >=1
socket.connection.setup.timeout.max.ms LONG 30000 MEDIUM read-only
socket.connection.setup.timeout.ms LONG 10000 MEDIUM read-only
transaction.state.log.min.isr INT 2 HIGH read-only >=1
transaction.state.log.replication.factor SHORT 3 HIGH read-only >=1
unclean.leader.election.interval.ms LONG 300000 MEDIUM internal >=1
"""
_QUORUM = """
broker.heartbeat.interval.ms INT 2000 MEDIUM read-only
broker.session.timeout.ms INT 9000 MEDIUM read-only
controlled.shutdown.enable BOOLEAN true MEDIUM read-only
controller.performance.always.log.threshold.ms LONG 2000 MEDIUM internal >=0
controller.performance.sample.period.ms LONG 60000 MEDIUM internal >=100
controller.quorum.append.linger.ms INT 25 MEDIUM read-only >=0
controller.quorum.auto.join.enable BOOLEAN false LOW read-only
controller.quorum.bootstrap.servers LIST "" HIGH read-only
controller.quorum.election.backoff.max.ms INT 1000 HIGH read-only >=0
controller.quorum.election.timeout.ms INT 1000 HIGH read-only >=0
controller.quorum.fetch.max.bytes INT 1048576 LOW read-only >=1
controller.quorum.fetch.snapshot.max.bytes INT 1048576 LOW read-only >=1
controller.quorum.fetch.timeout.ms INT 2000 HIGH read-only >=0
controller.quorum.request.timeout.ms INT 2000 MEDIUM read-only >=0
controller.quorum.retry.backoff.ms INT 20 LOW read-only >=0
controller.quorum.voters LIST "" HIGH read-only
controller.quota.window.num INT 11 LOW read-only >=1
controller.quota.window.size.seconds INT 1 LOW read-only >=1
controller.socket.timeout.ms INT 30000 MEDIUM read-only
early.start.listeners LIST - HIGH read-only
initial.broker.registration.timeout.ms INT 60000 MEDIUM read-only
internal.metadata.delete.delay.millis LONG 60000 LOW internal
internal.metadata.log.segment.bytes INT - LOW internal
internal.metadata.max.batch.size.in.bytes INT 8388608 LOW internal
metadata.log.dir STRING - HIGH read-only
metadata.log.segment.bytes INT 1073741824 HIGH read-only >=8388608
metadata.log.segment.ms LONG 604800000 HIGH read-only
metadata.max.idle.interval.ms INT 500 LOW read-only >=0
metadata.max.retention.bytes LONG 104857600 HIGH read-only
metadata.max.retention.ms LONG 604800000 HIGH read-only
process.roles LIST - HIGH read-only broker|controller
server.max.startup.time.ms LONG 9223372036854775807 MEDIUM internal >=0
unstable.api.versions.enable BOOLEAN false HIGH internal
unstable.feature.versions.enable BOOLEAN false HIGH internal
"""
_PLUGINS = """
alter.config.policy.class.name CLASS - LOW read-only
authorizer.class.name STRING "" LOW read-only
client.quota.callback.class CLASS - LOW read-only
config.providers LIST "" LOW cluster-wide
create.topic.policy.class.name CLASS - LOW read-only
group.share.persister.class.name STRING - MEDIUM internal
"""
_THREADS = """
add.partitions.to.txn.retry.backoff.max.ms INT 100 HIGH read-only >=0
add.partitions.to.txn.retry.backoff.ms INT 20 HIGH read-only >=1
background.threads INT 10 HIGH cluster-wide >=1
delete.records.purgatory.purge.interval.requests INT 1 MEDIUM read-only
fetch.purgatory.purge.interval.requests INT 1000 MEDIUM read-only
group.coordinator.append.linger.ms INT -1 MEDIUM read-only >=-1
group.coordinator.background.threads INT 2 HIGH read-only >=1
group.coordinator.cached.buffer.max.bytes INT 1048588 MEDIUM cluster-wide >=524288
group.coordinator.threads INT 4 HIGH read-only >=1
num.io.threads INT 8 HIGH cluster-wide >=1
num.network.threads INT 3 HIGH cluster-wide >=1
num.recovery.threads.per.data.dir INT 2 HIGH cluster-wide >=1
offsets.load.buffer.size INT 5242880 HIGH read-only >=1
producer.purgatory.purge.interval.requests INT 1000 MEDIUM read-only
share.coordinator.append.linger.ms INT -1 MEDIUM read-only >=-1
share.coordinator.cached.buffer.max.bytes INT 1048588 MEDIUM cluster-wide >=524288
share.coordinator.load.buffer.size INT 5242880 HIGH read-only >=1
share.coordinator.threads INT 1 MEDIUM read-only >=1
share.fetch.purgatory.purge.interval.requests INT 1000 MEDIUM read-only
transaction.state.log.load.buffer.size INT 5242880 HIGH read-only >=1
"""
_CLEANER = """
log.cleaner.io.buffer.load.factor DOUBLE 0.9 MEDIUM cluster-wide
log.cleaner.threads INT 1 MEDIUM cluster-wide >=0
"""
_METRICS = """
kafka.metrics.polling.interval.secs INT 10 LOW read-only >=1
kafka.metrics.reporters LIST "" LOW read-only
metric.reporters LIST - LOW cluster-wide
metrics.num.samples INT 2 LOW read-only >=1
metrics.recording.level STRING INFO LOW read-only
metrics.sample.window.ms LONG 30000 LOW read-only >=1
telemetry.max.bytes INT 1048576 LOW read-only >=1
"""
_QUOTAS = """
quota.window.num INT 11 LOW read-only >=1
quota.window.size.seconds INT 1 LOW read-only >=1
"""
_OTHER = """
cordoned.log.dirs LIST "" MEDIUM per-broker
group.share.initialize.retry.interval.ms INT 30000 LOW internal >=1
log.dir.failure.timeout.ms LONG 30000 LOW read-only >=1
request.timeout.ms INT 30000 HIGH read-only
share.coordinator.cold.partition.snapshot.interval.ms INT 300000 LOW internal >=1
share.coordinator.state.topic.compression.codec INT 0 HIGH read-only
share.coordinator.state.topic.prune.interval.ms INT 300000 LOW internal >=1
share.coordinator.write.timeout.ms INT 5000 HIGH read-only >=1
"""

WHY: Mapping[str, str] = MappingProxyType(
    {
        _TIERED: "there is no tiered storage",
        _TLS: "no listener speaks TLS",
        _SASL: "no listener speaks SASL",
        _STREAMS: "groups of Kafka Streams' own protocol are not served",
        _REPLICATION: "one node replicates nothing and elects no leaders",
        _QUORUM: "one node is its own controller and votes with nobody",
        _PLUGINS: "plug-ins are Java classes",
        _THREADS: "one event loop does this work, with no pools or buffers to size",
        _CLEANER: "one process compacts one log at a time, with a map of keys that grows as needed",
        _METRICS: "measurements need no samples or reporters",
        _QUOTAS: "clients are not throttled",
        _OTHER: "the part of Kafka it belongs to is not here",
    }
)

# Names that Kafka 4 dropped, and families of names that any word may follow.
PREFIXES: Mapping[str, str] = MappingProxyType(
    {
        "zookeeper.": "Kafka 4 dropped ZooKeeper, and there is none here",
        "listener.name.": "no listener speaks TLS or SASL",
        "rlmm.config.": "there is no tiered storage",
        "rsm.config.": "there is no tiered storage",
        "config.providers.": "values are read as they stand",
        "password.encoder.": "Kafka 4 dropped it with ZooKeeper",
    }
)
DROPPED = (
    "advertised.host.name",
    "advertised.port",
    "auto.include.jmx.reporter",
    "broker.id.generation.enable",
    "control.plane.listener.name",
    "controlled.shutdown.max.retries",
    "controlled.shutdown.retry.backoff.ms",
    "delegation.token.master.key",
    "eligible.leader.replicas.enable",
    "group.coordinator.new.enable",
    "host.name",
    "inter.broker.protocol.version",
    "leader.imbalance.per.broker.percentage",
    "log.message.downconversion.enable",
    "log.message.format.version",
    "log.message.timestamp.difference.max.ms",
    "offsets.commit.required.acks",
    "port",
    "quota.consumer.default",
    "quota.producer.default",
    "reserved.broker.max.id",
    "zookeeper.connect",
)
# Kafka lets these be set on a running broker only.
_RATES = (
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)


def _check(kind: Kind, rule: str) -> Check | None:
    if not rule:
        return None
    if rule.startswith(">="):
        return at_least(int(rule[2:]))
    if ".." in rule:
        low, high = rule.split("..")
        return between(float(low), float(high))
    return (list_of if kind is Kind.LIST else one_of)(*rule.split("|"))


def _rows() -> Iterator[Row]:
    for table, why in WHY.items():
        for line in table.split("\n")[1:-1]:
            name, kind_name, default, importance, mode, *rule = line.split()
            kind = Kind[kind_name]
            internal = mode == "internal"
            yield Row(
                name=name,
                kind=kind,
                default=None if default == "-" else PARSERS[kind](default.strip('"')),
                doc=f"Taken and shown, without effect: {why}.",
                importance=Importance[importance],
                check=_check(kind, rule[0] if rule else ""),
                dynamic=Dynamic.READ_ONLY if internal else Dynamic(mode),
                inert=True,
                internal=internal,
            )


def _dropped(name: str, why: str) -> Row:
    doc = f"Taken without effect: {why}."
    return Row(name=name, kind=Kind.STRING, default=None, doc=doc, inert=True, internal=True)


INERT_ROWS: tuple[Row, ...] = (
    *_rows(),
    *(_dropped(name, "Kafka 4 dropped it") for name in DROPPED),
    *(_dropped(name, "one node replicates nothing") for name in _RATES),
)
PREFIX_ROWS: Mapping[str, Row] = MappingProxyType(
    {prefix: _dropped(prefix, why) for prefix, why in PREFIXES.items()}
)
