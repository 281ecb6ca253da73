"""The OpenAPI document, written from the table of routes."""

from typing import Any

from headrace import __version__
from headrace.registry.http.access import Role
from headrace.registry.http.exchange import PRODUCED
from headrace.registry.http.routes import ROUTES, Route

REFUSAL = {
    "type": "object",
    "properties": {"error_code": {"type": "integer"}, "message": {"type": "string"}},
}


def document() -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.0.3",
        "info": {
            "title": "Headrace schema registry",
            "description": "Confluent's Schema Registry API. Every path may be preceded by "
            "/contexts/{context}.",
            "version": __version__,
        },
        "paths": paths,
        "components": {
            "schemas": {"Refusal": REFUSAL},
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    parameters = [
        {"name": part[1:-1], "in": "path", "required": True, "schema": {"type": "string"}}
        for part in route.parts
        if part.startswith("{")
    ]
    parameters += [
        {"name": name, "in": "query", "required": False, "schema": {"type": "string"}}
        for name in route.query
    ]
    refusal = {"schema": {"$ref": "#/components/schemas/Refusal"}}
    operation: dict[str, Any] = {
        "operationId": f"{route.method.lower()}_{'_'.join(route.parts)}".replace("{", "").replace(
            "}", ""
        ),
        "summary": route.name.replace("_", " "),
        "tags": [route.parts[0] if route.parts else "root"],
        "parameters": parameters,
        "responses": {
            "200": {"description": "Done", "content": {kind: {} for kind in PRODUCED}},
            "default": {"description": "Refused", "content": {PRODUCED[0]: refusal}},
        },
    }
    if route.method in ("POST", "PUT"):
        body = {"schema": {"type": "object"}}
        operation["requestBody"] = {"content": dict.fromkeys(PRODUCED, body)}
    if route.role is not Role.NONE:
        operation["security"] = [{"basic": []}]
    return operation
