"""Bodies and values -> responses."""

from collections.abc import AsyncIterator, Iterable

import msgspec
from fastapi import Request, Response
from fastapi.responses import StreamingResponse

from gpusteward.analyzer.gzip_blocks import Body

JSON_TYPE = "application/json"


def send_json(value: object, *, etag: str = "") -> Response:
    """A value as JSON; NaN, which is unknown, becomes null."""
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"} if etag else {"Cache-Control": "no-store"}
    return Response(msgspec.json.encode(value), headers=headers, media_type=JSON_TYPE)


def send_body(body: Body, *, gzip: bool, media_type: str, tail: bytes = b"", etag: str = "") -> Response:
    """A kept body, packed or not, with this behind it."""
    headers = {"Vary": "Accept, Accept-Encoding", "Cache-Control": "private, no-cache" if etag else "no-store"}
    if etag:
        headers["ETag"] = etag
    if gzip:
        packed = body.gzip(tail)
        headers |= {"Content-Encoding": "gzip", "Content-Length": str(sum(map(len, packed)))}
        return StreamingResponse(_ready(packed), headers=headers, media_type=media_type)
    headers["Content-Length"] = str(body.size + len(tail))
    # Unpacking is work for a thread, where Starlette runs plain iterators; ready pieces need none.
    pieces = _ready(body.pieces(tail)) if body.is_kept_plain else body.pieces(tail)
    return StreamingResponse(pieces, headers=headers, media_type=media_type)


async def _ready(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def is_known(request: Request, etag: str) -> bool:
    """Whether the client has this already."""
    said = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    return etag in said or "*" in said


def send_not_modified(etag: str) -> Response:
    return Response(status_code=304, headers={"ETag": etag, "Cache-Control": "private, no-cache"})
