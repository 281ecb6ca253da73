"""Routes that say what this server is."""

from headrace import __version__
from headrace.registry.http.exchange import Answer, Request
from headrace.registry.registry import Registry


def root(_: Registry, __: Request) -> Answer:
    return Answer({})


def cluster_id(registry: Registry, _: Request) -> Answer:
    clusters = {
        "kafka-cluster": registry.kafka_cluster_id,
        "schema-registry-cluster": registry.group_id,
    }
    return Answer({"scope": {"path": [], "clusters": clusters}, "id": ""})


def server_version(_: Registry, __: Request) -> Answer:
    return Answer({"version": __version__, "commitId": ""})


def deployment(_: Registry, __: Request) -> Answer:
    return Answer({"attributes": []})
