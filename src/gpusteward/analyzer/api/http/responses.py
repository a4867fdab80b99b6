"""Responses from values and from compressed bodies, small pages; routes whose response models are documentation."""

import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute

from gpusteward.core.messages import Language
from gpusteward.http_server.gzip_body import Body

JSON_TYPE = "application/json"
PAGE_POLICY = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def send_json(value: object, *, etag: str = "") -> Response:
    """A value as JSON; NaN, which means unknown, becomes null."""
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"} if etag else {"Cache-Control": "no-store"}
    return Response(msgspec.json.encode(value), headers=headers, media_type=JSON_TYPE)


def send_body(body: Body, *, gzip: bool, media_type: str, tail: bytes = b"", etag: str = "") -> Response:
    """A body followed by `tail`, compressed or not."""
    headers = {"Vary": "Accept, Accept-Encoding", "Cache-Control": "private, no-cache" if etag else "no-store"}
    if etag:
        headers["ETag"] = etag
    if gzip:
        packed = body.gzip(tail)
        headers |= {"Content-Encoding": "gzip", "Content-Length": str(sum(map(len, packed)))}
        return StreamingResponse(_iterate(packed), headers=headers, media_type=media_type)
    headers["Content-Length"] = str(body.size + len(tail))
    # Starlette runs plain iterators in a thread, which decompression needs; kept pieces do not.
    pieces = _iterate(body.pieces(tail)) if body.is_kept_plain else body.pieces(tail)
    return StreamingResponse(pieces, headers=headers, media_type=media_type)


async def _iterate(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def has_current(request: Request, etag: str) -> bool:
    """Whether the client already has the current version (`If-None-Match`)."""
    tags = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    return etag in tags or "*" in tags


def send_not_modified(etag: str) -> Response:
    return Response(status_code=304, headers={"ETag": etag, "Cache-Control": "private, no-cache"})


def send_page(
    title: str,
    content: str,
    language: Language,
    *,
    status: int = 200,
    headers: Mapping[str, str],
    root: str = "",
    heading: str = "",
    style: str = "docs/docs.css",
) -> Response:
    """A small page for people. `title`, `content`: already escaped HTML. `root`: the relative path to `/`. `heading`:
    default: the title. `style`: the path of its style sheet below the root."""
    page = (
        f'<!doctype html><html lang="{"zh-CN" if language == "zh" else "en"}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f'<title>{title}</title><link rel="stylesheet" href="{root}{style}"></head>'
        f"<body><h1>{heading or title}</h1>{content}</body></html>"
    )
    return Response(page, status, {"Content-Security-Policy": PAGE_POLICY, **headers}, "text/html")


def format_utc(at: float | None) -> str | None:
    """`2026-11-15T22:13:09Z`; None for an unknown time."""
    if at is None or math.isnan(at):
        return None
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_utc_ms(at_ms: int | None) -> str | None:
    """As `format_utc`, of milliseconds."""
    return None if at_ms is None else format_utc(at_ms / 1000)


class DocumentedRoute(APIRoute):
    """Builds what its response model needs only for the OpenAPI document. Measured: 5 MB for all routes."""

    def __init__(self, path: str, endpoint: Callable[..., Any], *, response_model: Any = None, **options: Any) -> None:
        self.describe = partial(APIRoute, path, endpoint, response_model=response_model, **options)
        """The same route with its response model."""
        super().__init__(path, endpoint, response_model=None, **options)
