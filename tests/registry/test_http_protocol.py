"""Content types, bad bodies, unknown paths, users: the API beneath its nouns."""

import json
from urllib.parse import parse_qs

import pytest

from headrace.registry.http.access import Grant, Role, User, Users, hash_password
from headrace.registry.http.exchange import PLAIN_JSON, V1_JSON
from headrace.registry.http.routes import ROUTES
from headrace.registry.refusals import Refusal
from tests.registry.registry_in_memory import Api

REGISTER = "/subjects/a/versions"


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.mark.parametrize(
    ("accept", "given"),
    [
        ("", V1_JSON),
        ("*/*", V1_JSON),
        (V1_JSON, V1_JSON),
        ("application/vnd.schemaregistry+json", "application/vnd.schemaregistry+json"),
        ("application/json", PLAIN_JSON),
        ("text/html, application/json;q=0.9, */*;q=0.1", PLAIN_JSON),
        (f"application/json, {V1_JSON}", V1_JSON),
    ],
)
def test_the_answer_is_of_a_type_the_client_accepts(api: Api, accept: str, given: str) -> None:
    answer = api.ask("GET", "/subjects", headers={"accept": accept})
    assert (answer.status, answer.headers["content-type"]) == (200, given)


def test_types_nobody_speaks_are_refused(api: Api) -> None:
    assert api.ask("GET", "/subjects", headers={"accept": "text/html"}).code == 406
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert api.ask("POST", REGISTER, {"schema": "x"}, headers=form).code == 415
    for kind in (V1_JSON, PLAIN_JSON, "application/json; charset=utf-8", ""):
        assert (
            api.ask("POST", REGISTER, {"schema": "x"}, headers={"content-type": kind}).status == 200
        )


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"{", 400),
        (b"[]", 400),
        (b'"x"', 400),
        (b"\xff\xfe", 400),
        (b'{"schema": {"type": "int"}}', 400),
        (b'{"schema": "x", "schemaType": 3}', 400),
        (b'{"schema": "x", "references": {}}', 400),
        (b'{"schema": "x", "references": [1]}', 400),
        (b'{"schema": "x", "metadata": []}', 400),
        (b'{"schema": "x", "id": "one"}', 400),
        (b'{"schema": "x", "version": 99999999999}', 400),
        (b'{"schema": "\\ud800"}', 400),
        (b"[" * 100_000, 400),
        (b"{}", 422),
        (b'{"schema": ""}', 422),
        (b'{"schema": "!"}', 422),
        (b'{"schema": "x", "schemaType": "YAML"}', 422),
    ],
)
def test_bad_bodies_are_refused_and_nothing_is_written(api: Api, body: bytes, status: int) -> None:
    answer = api.post(REGISTER, body)
    assert answer.status == status
    assert set(answer.content) == {"error_code", "message"}
    assert api.log.records == []


def test_what_the_log_would_not_take_is_refused_unread(api: Api) -> None:
    api.registry.max_schema_bytes = 1_000
    answer = api.post(REGISTER, b'{"schema": "!!!' + b" " * 1_000)
    assert (answer.status, answer.code) == (422, 42209)
    answer = api.post(REGISTER, b" " * (33 << 20))
    assert answer.status == 413


def test_unknown_paths_and_methods(api: Api) -> None:
    assert api.get("/nothing").content == {"error_code": 404, "message": "HTTP 404 Not Found"}
    assert api.put("/subjects", {}).code == 405
    assert api.get("/schemas/ids/one").code == 404
    assert api.get("/").content == {}
    assert api.get("/subjects/").content == []


def test_types_and_metadata_of_the_server(api: Api) -> None:
    assert sorted(api.get("/schemas/types").content) == ["AVRO", "JSON", "PROTOBUF"]
    scope = api.get("/v1/metadata/id").content["scope"]
    assert scope["clusters"]["schema-registry-cluster"] == "schema-registry"
    assert "version" in api.get("/v1/metadata/version").content


def test_every_route_is_in_the_openapi_document(api: Api) -> None:
    paths = api.get("/openapi.json").content["paths"]
    listed = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert listed == {(route.method, route.path) for route in ROUTES}


def test_metrics_count_requests_by_route(api: Api) -> None:
    api.get("/subjects/a/versions/1")
    text = api.get("/metrics").content
    expected = 'method="GET",path="/subjects/{subject}/versions/{version}",status="404"} 1'
    assert expected in text


@pytest.mark.parametrize("away", [Refusal.STORE_FAILED, Refusal.TIMED_OUT])
def test_without_the_log_reads_go_on_and_writes_recover(api: Api, away: Refusal) -> None:
    api.register("a", "x")
    api.log.away = away
    answer = api.post(REGISTER, {"schema": "x y?"})
    assert (answer.status, answer.code) == (500, away.code)
    assert api.get("/schemas/ids/1").content["schema"] == "x"
    # What is registered needs no write.
    assert api.register("a", "x") == 1
    api.log.away = None
    assert api.register("a", "x y?") == 2


def test_without_a_leader_what_is_registered_is_still_told(api: Api) -> None:
    api.register("a", "x")
    api.group.known = False
    assert api.register("a", "x") == 1
    assert api.post(REGISTER, {"schema": "x y?"}).code == 50004
    assert api.delete("/subjects/a").code == 50004
    assert api.post(REGISTER, {"schema": "!"}).code == 42201


def head(path: str, *lines: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: here", *lines, "", ""]).encode()


def test_the_quick_answer_is_the_usual_one_and_never_stale(api: Api) -> None:
    api.register("a", "x")
    for path in ("/schemas/ids/1", "/schemas/ids/1?subject=a&fetchMaxId=true"):
        for _ in range(2):
            answer = api.application.quick(head(path, "Accept: application/json"))
            assert answer is not None
            start, _, body = answer.partition(b"\r\n\r\n")
            plain, _, query = path.partition("?")
            fields: dict[str, object] = {k: v[0] for k, v in parse_qs(query).items()}
            usual = api.ask("GET", plain, None, fields)
            assert json.loads(body) == usual.content
            assert b"content-type: application/json" in start
            assert f"content-length: {len(body)}".encode() in start
    assert b'"maxId":1' in (answer or b"")
    api.register("b", "y")
    answer = api.application.quick(head(path, "Accept: application/json"))
    assert answer is not None
    assert b'"maxId":2' in answer


@pytest.mark.parametrize(
    "request_bytes",
    [
        head("/schemas/ids/9"),
        head("/subjects"),
        head("/schemas/ids/1", "Connection: close"),
        head("/schemas/ids/1", "Content-Length: 3") + b"abc",
        head("/schemas/ids/1") + head("/schemas/ids/1"),
        head("/schemas/ids/1")[:-2],
        head("/schemas/ids/1", "Accept: text/html"),
        b"GET /schemas/ids/1\r\n\r\n",
        b"GET /schemas/ids/1 HTTP/1.0\r\n\r\n",
    ],
)
def test_what_is_not_plain_is_left_to_the_parser(api: Api, request_bytes: bytes) -> None:
    api.register("a", "x")
    assert api.application.quick(request_bytes) is None


@pytest.fixture(scope="module")
def users() -> Users:
    def user(name: str, *grants: Grant) -> User:
        return User(name, hash_password(f"{name}-secret"), grants)

    known = (
        user("admin", Grant(Role.ADMIN)),
        user("writer", Grant(Role.WRITE, "orders-"), Grant(Role.READ, "shared-")),
        user("reader", Grant(Role.READ)),
    )
    return Users({each.name: each for each in known})


def basic(name: str, password: str | None = None) -> dict[str, str]:
    import base64

    pair = f"{name}:{password or name + '-secret'}".encode()
    return {"authorization": f"Basic {base64.b64encode(pair).decode()}"}


def test_users_do_what_their_roles_allow(users: Users) -> None:
    api = Api(users)
    schema = {"schema": "x"}

    def status(user: str, method: str, path: str, body: object = None) -> int:
        return api.ask(method, path, body, headers=basic(user)).status

    assert api.get("/subjects").code == 40101
    assert "www-authenticate" in api.get("/subjects").headers
    assert api.ask("GET", "/subjects", headers=basic("admin", "wrong")).status == 401
    assert api.ask("GET", "/subjects", headers={"authorization": "Basic !"}).status == 401
    assert status("reader", "POST", "/subjects/orders-a/versions", schema) == 403
    assert status("writer", "POST", "/subjects/orders-a/versions", schema) == 200
    assert status("writer", "POST", "/subjects/shared-a/versions", schema) == 403
    assert status("writer", "PUT", "/config/orders-a", {"compatibility": "NONE"}) == 403
    assert status("admin", "PUT", "/config", {"compatibility": "NONE"}) == 200
    assert status("admin", "POST", "/subjects/other/versions", {"schema": "z"}) == 200
    assert status("writer", "GET", "/subjects/other/versions") == 403
    assert status("writer", "GET", "/schemas/ids/1") == 200
    assert status("writer", "GET", "/schemas/ids/2") == 404
    listed = api.ask("GET", "/subjects", headers=basic("writer"))
    assert listed.content == ["orders-a"]
    assert status("reader", "GET", "/schemas/ids/2") == 200
    quick = head("/schemas/ids/1")
    assert api.application.quick(quick) is None
