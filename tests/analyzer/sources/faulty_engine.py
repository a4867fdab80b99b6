"""A proxy in front of a real engine, with named faults.

with faulty(engine.url) as proxy:
    proxy.fault = truncated_response("DCGM_FI_DEV_GPU_UTIL")
"""

import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Form = dict[str, list[str]]


class FaultyEngine(ThreadingHTTPServer):
    """Forwards every request that the present fault does not handle."""

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream
        self.fault: Fault = no_fault
        self.queries: list[str] = []  # expressions, in order
        self.headers_seen: list[dict[str, str]] = []
        self.clock_ahead_seconds = 0.0
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Many of these tests close connections on purpose."""


Fault = Callable[["_Handler", str], bool]
"""Gets the request and its expression; True if it has handled it."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # the body follows its header without a delay of 40 ms
    server: FaultyEngine

    def do_GET(self) -> None:
        self._serve(None)

    def do_POST(self) -> None:
        self._serve(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _serve(self, body: bytes | None) -> None:
        self.body = body
        self.form: Form = urllib.parse.parse_qs((body or b"").decode() or urllib.parse.urlsplit(self.path).query)
        expression = (self.form.get("query") or self.form.get("match[]") or [""])[0]
        self.server.queries.append(expression)
        self.server.headers_seen.append(dict(self.headers))
        if not self.server.fault(self, expression):
            self.respond(*self.forward(body))

    def forward(self, body: bytes | None) -> tuple[int, bytes]:
        headers = {"Content-Type": self.headers.get("Content-Type", "text/plain")}
        request = urllib.request.Request(self.server.upstream + self.path, data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=20) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()
        except OSError:
            return 502, b"upstream is gone"

    def respond(self, status: int, body: bytes, *, length: int | None = None, **headers: str) -> None:
        self.send_response_only(status)
        self.send_header("Date", formatdate(self.date_now(), usegmt=True))
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def date_now(self) -> float:
        return time.time() + self.server.clock_ahead_seconds

    def log_message(self, *_: object) -> None:
        """Keep the test output clean."""


def no_fault(_: _Handler, __: str) -> bool:
    return False


def truncated_response(word: str) -> Fault:
    """The connection breaks in the middle of the body."""

    def break_off(handler: _Handler, expression: str) -> bool:
        if word in expression:
            body = b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{"UUID":"GPU'
            handler.respond(200, body, length=5 * len(body))
            handler.close_connection = True
            handler.connection.close()
        return word in expression

    return break_off


def cut_json(word: str) -> Fault:
    """The body ends early, but with the right length."""

    def cut(handler: _Handler, expression: str) -> bool:
        if word in expression:
            handler.respond(200, b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"b"}')
        return word in expression

    return cut


def fails(word: str, *, times: int | None = None, status: int = 503, body: bytes = b"busy") -> Fault:
    """Refuses expressions with the word, a number of times or always."""
    left = [times]

    def refuse(handler: _Handler, expression: str) -> bool:
        if word not in expression or left[0] == 0:
            return False
        if left[0] is not None:
            left[0] -= 1
        handler.respond(status, body)
        return True

    return refuse


def no_response(word: str) -> Fault:
    """Accepts the request and does not respond."""

    def wait(handler: _Handler, expression: str) -> bool:
        if word in expression:
            handler.server.over.wait(60)
        return word in expression

    return wait


def slow(word: str, seconds: float) -> Fault:
    """Responds after a delay."""

    def wait(handler: _Handler, expression: str) -> bool:
        if word in expression:
            handler.server.over.wait(seconds)
        return False

    return wait


def responds_with(word: str, body: bytes) -> Fault:
    """Responds with this body instead."""

    def respond(handler: _Handler, expression: str) -> bool:
        if word in expression:
            handler.respond(200, body)
        return word in expression

    return respond


def stores_down(*addresses: str, lost: str = "none-is-lost", only: str = "") -> Fault:
    """A Thanos querier whose stores at these addresses do not respond. Without partial responses it fails; with them it
    names the stores, and omits the series whose pod or UUID begins with `lost`, which no other store has. `only`:
    responses to other expressions are complete."""

    def respond(handler: _Handler, expression: str) -> bool:
        if only not in expression or "/api/v1/status" in handler.path:
            return False
        if handler.form.get("partial_response") == ["false"]:
            handler.respond(
                422, b'{"status":"error","errorType":"execution","error":"fetch series: connection refused"}'
            )
            return True
        status, body = handler.forward(handler.body)
        answer = json.loads(body)
        if isinstance(answer["data"], dict) and "result" in answer["data"]:
            rows = answer["data"]["result"]
            answer["data"]["result"] = [row for row in rows if not _has_value(row["metric"], lost)]
        answer["warnings"] = [
            f"fetch series for {{}} Addr: {address} MinTime: {len(handler.server.queries)}: rpc error: unavailable"
            for address in addresses
        ]
        handler.respond(status, json.dumps(answer, separators=(",", ":")).encode())
        return True

    return respond


def _has_value(labels: dict[str, str], prefix: str) -> bool:
    return any(labels.get(name, "").startswith(prefix) for name in ("pod", "UUID", "Hostname", "instance"))


def over_limit_unless(word: str) -> Fault:
    """A limit of the engine that only sharded queries stay below."""
    body = (
        b'{"status":"error","errorType":"execution","error":"query processing would load too many samples into memory"}'
    )

    def refuse(handler: _Handler, expression: str) -> bool:
        if "_over_time(" not in expression or word in expression:
            return False
        handler.respond(422, body)
        return True

    return refuse


@contextmanager
def faulty(upstream: str) -> Iterator[FaultyEngine]:
    server = FaultyEngine(upstream)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()
