"""The OpenAPI document as it is true of the answers, and a page of it that needs nothing from elsewhere."""

from html import escape
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi


def document(app: FastAPI) -> dict[str, Any]:
    """The document, made once: wrong requests are answered with 400 here, never with 422."""
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        for path in made["paths"].values():
            for operation in path.values():
                operation["responses"].pop("422", None)
        schemas = made["components"]["schemas"]
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        if app.state.studio.settings.api_key is not None:
            made["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            made["security"] = [{"key": []}]
        app.openapi_schema = made
    return app.openapi_schema


def page(made: dict[str, Any]) -> str:
    """The document for people: every route, what it takes and what it answers."""
    parts = [
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{escape(made['info']['title'])}</title>",
        "<meta name='viewport' content='width=device-width'><link rel='stylesheet' href='/page/studio.css'></head>",
        f"<body><main><h1>{escape(made['info']['title'])}</h1><p>{escape(made['info']['description'])} ",
        "For programs: <a href='/openapi.json'>openapi.json</a>.</p>",
    ]
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            parts.append(_operation(path, method, operation, made["components"]["schemas"]))
    return "".join(parts) + "</main></body></html>"


def _operation(path: str, method: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    rows = [(p["name"], p.get("schema", {}), p.get("required", False)) for p in operation.get("parameters", [])]
    for content in operation.get("requestBody", {}).get("content", {}).values():
        schema = _resolved(content.get("schema", {}), schemas)
        needed = schema.get("required", [])
        rows += [(name, value, name in needed) for name, value in schema.get("properties", {}).items()]
    told = "".join(
        f"<tr><th scope='row'><code>{escape(name)}</code></th><td>{_type(schema)}{' (needed)' if needed else ''}</td>"
        f"<td>{escape(schema.get('description', ''))}</td></tr>"
        for name, schema, needed in rows
    )
    answers = ", ".join(f"{status} {escape(one['description'])}" for status, one in operation["responses"].items())
    return (
        f"<section><h2><code>{method.upper()} {escape(path)}</code></h2>"
        f"<p>{escape(operation.get('description', ''))}</p>"
        + (f"<table><tbody>{told}</tbody></table>" if told else "")
        + f"<p>Answers: {answers}</p></section>"
    )


def _resolved(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    return dict(schemas.get(name, schema))


def _type(schema: dict[str, Any]) -> str:
    options = [schema, *schema.get("anyOf", [])]
    names = [one.get("type") or one.get("$ref", "").rpartition("/")[2] for one in options]
    known = [str(name) for name in names if name and name != "null"]
    chosen = [" | ".join(map(str, one["enum"])) for one in options if "enum" in one]
    return escape(" or ".join(chosen or known))
