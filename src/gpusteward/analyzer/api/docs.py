"""/docs and /redoc without a CDN: the OpenAPI document as an HTML page; a small script can send requests.

FastAPI's own pages load Swagger UI or ReDoc from a CDN. Their files would have to be part of this package: 1.5 MB of
JavaScript, and inline scripts that the Content-Security-Policy forbids.
"""

import asyncio
import json
from collections.abc import Mapping
from functools import lru_cache
from html import escape
from importlib.resources import files
from typing import Any, NamedTuple

from fastapi import APIRouter, FastAPI, Request, Response

router = APIRouter(include_in_schema=False)

Json = Mapping[str, Any]
_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-ancestors 'none'"
_HEADERS = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
_METHODS = ("get", "post", "put", "patch", "delete")


@router.get("/openapi.json")
async def show_document(request: Request) -> Response:
    return Response((await _find_rendered(request.app)).document, media_type="application/json")


@router.get("/docs")
@router.get("/redoc")  # FastAPI has both; they show the same document
async def show_docs(request: Request) -> Response:
    return Response((await _find_rendered(request.app)).page, headers=_HEADERS, media_type="text/html")


@router.get("/docs/docs.js")
def show_script() -> Response:
    return Response(_read("docs.js"), headers=_HEADERS, media_type="text/javascript")


@router.get("/docs/docs.css")
def show_style() -> Response:
    return Response(_read("docs.css"), headers=_HEADERS, media_type="text/css")


@lru_cache(maxsize=4)
def _read(name: str) -> bytes:
    return files("gpusteward.analyzer.api").joinpath("assets", name).read_bytes()


class Rendered(NamedTuple):
    """The OpenAPI document, and its page."""

    document: bytes
    page: bytes


async def _find_rendered(app: FastAPI) -> Rendered:
    """Rendered by one thread for the first requests together, which takes some tenths of a second."""
    return await asyncio.shield(_start_rendering(app))


@lru_cache(maxsize=4)
def _start_rendering(app: FastAPI) -> asyncio.Future[Rendered]:
    return asyncio.get_running_loop().run_in_executor(None, _render, app)


def _render(app: FastAPI) -> Rendered:
    found = app.openapi()
    return Rendered(json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode(), render_docs(found).encode())


def render_docs(document: Json) -> str:
    """The whole page."""
    info = document["info"]
    operations = "".join(
        _operation(method, path, item[method])
        for path, item in document["paths"].items()
        for method in _METHODS
        if method in item
    )
    schemas = "".join(_schema(name, each) for name, each in document["components"]["schemas"].items())
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<title>{escape(info["title"])}</title><link rel="stylesheet" href="docs/docs.css"></head><body>'
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>{_paragraphs(info.get('description', ''))}"
        '<p><a href="openapi.json">openapi.json</a> · <label>Bearer token <input id="token" type="password" '
        'autocomplete="off"></label></p>'
        f"<h2>Endpoints</h2>{operations}<h2>Schemas</h2>{schemas}"
        '<script src="docs/docs.js"></script></body></html>'
    )


def _operation(method: str, path: str, operation: Json) -> str:
    parameters = "".join(_parameter(each) for each in operation.get("parameters", []))
    table = f"<table><tr><th>name</th><th>in</th><th>value</th><th></th></tr>{parameters}</table>" if parameters else ""
    responses = ", ".join(filter(None, (_response(code, each) for code, each in operation["responses"].items())))
    return (
        f'<details><summary><b class="{method}">{method.upper()}</b> <code>{escape(path)}</code> '
        f"{escape(operation.get('summary', ''))}</summary>{_paragraphs(operation.get('description', ''))}"
        f'<form data-method="{method}" data-path="{escape(path)}">{table}<p>Responses: {responses}</p>'
        "<button>Send</button> <output></output></form></details>"
    )


def _parameter(parameter: Json) -> str:
    name, location, schema = parameter["name"], parameter["in"], parameter.get("schema", {})
    return (
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(location)}</td>"
        f'<td><input name="{escape(name)}" data-in="{escape(location)}"></td>'
        f"<td>{_type(schema)} {escape(parameter.get('description', ''))}</td></tr>"
    )


def _response(code: str, response: Json) -> str:
    types = [_type(each.get("schema", {})) for each in response.get("content", {}).values()]
    return f"{escape(code)} {' or '.join(filter(None, types))}".strip()


def _schema(name: str, schema: Json) -> str:
    rows = "".join(_property(key, each) for key, each in schema.get("properties", {}).items())
    return (
        f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary>'
        f"{_paragraphs(schema.get('description', ''))}<table>{rows}</table></details>"
    )


def _property(name: str, schema: Json) -> str:
    description = escape(schema.get("description", ""))
    return f"<tr><td><code>{escape(name)}</code></td><td>{_type(schema)}</td><td>{description}</td></tr>"


def _type(schema: Json) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#{escape(name)}">{escape(name)}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return " | ".join(
            f"<code>{escape(json.dumps(word))}</code>" for word in schema.get("enum") or [schema["const"]]
        )
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    bounds = [f"{sign} {schema[key]}" for key, sign in (("minimum", "≥"), ("maximum", "≤")) if key in schema]
    return escape(" ".join([str(schema.get("type", "")), *bounds]))


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{escape(part)}</p>" for part in text.split("\n\n") if part.strip())
