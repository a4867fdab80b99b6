"""HTTP responses of the agent and their bytes."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from gpusteward import __version__

PLAIN = "text/plain; charset=utf-8"
JSON = "application/json"
HTML = "text/html; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Response:
    """One HTTP response."""

    status: HTTPStatus
    body: bytes
    content_type: str = PLAIN
    headers: Mapping[str, str] = field(default_factory=dict)


def error_response(
    status: HTTPStatus, message: str, *, hint: str = "", headers: Mapping[str, str] | None = None
) -> Response:
    """The JSON shape of every error: code, message and a hint."""
    error = {"code": status.name.lower(), "message": message, "hint": hint}
    return Response(status, json.dumps({"error": error}).encode() + b"\n", JSON, headers or {})


def render_head(response: Response, extra: Iterable[tuple[str, str]]) -> bytes:
    """Status line and headers."""
    headers = {
        "Content-Type": response.content_type,
        "Content-Length": str(len(response.body)),
        "X-Content-Type-Options": "nosniff",
        **dict(extra),
        **response.headers,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {response.status.value} {response.status.phrase}\r\n{lines}\r\n".encode("latin-1", "replace")


LANDING_PAGE = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>gpusteward agent</title>
<style>body{{font:16px/1.6 system-ui,sans-serif;max-width:40em;margin:3em auto;padding:0 1em}}</style></head>
<body><h1>gpusteward agent</h1><p>version {__version__}</p><ul>
<li><a href="/metrics">/metrics</a>: GPU metrics of this node for Prometheus</li>
<li><a href="/livez">/livez</a>: whether this process works without a restart</li>
<li><a href="/healthz">/healthz</a>: whether this process is healthy</li>
<li><a href="/readyz">/readyz</a>: whether the served data is fresh</li>
<li><a href="/snapshot">/snapshot</a>: the last snapshot as JSON (local clients, or with a password)</li>
</ul></body></html>
""".encode()
LANDING = Response(
    HTTPStatus.OK,
    LANDING_PAGE,
    HTML,
    {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"},
)
TOO_MANY_CLIENTS = error_response(
    HTTPStatus.SERVICE_UNAVAILABLE,
    "too many concurrent requests",
    hint="try again, or raise --max-concurrent-scrapes",
    headers={"Retry-After": "1"},
)
