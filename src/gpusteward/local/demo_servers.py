"""HTTP servers of the demo: one of the simulated nodes and their loads, one of the simulated API server.

Beside them the same API without HTTP for the analyzer of the demo, and its channel, which takes notices as an incoming
webhook of Slack does, and prints them in the terminal.
"""

import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TextIO, TypeVar

import msgspec

from gpusteward.core.errors import ConfigurationError
from gpusteward.kubernetes.api import ApiServer, ObjectError
from gpusteward.local.api_requests import ApiRequest
from gpusteward.local.demo_control import CONTROL_PATH, INBOX_PATH
from gpusteward.local.demo_settings import open_loopback_socket, url_of
from gpusteward.local.simulated_cluster import SimulatedCluster
from gpusteward.local.simulated_fleet import DemoLoads, SimulatedFleet
from gpusteward.messages.errors import kubernetes_errors as messages


class _Text(msgspec.Struct):
    text: str = ""


class _Button(msgspec.Struct):
    text: _Text
    url: str = ""


class _Block(msgspec.Struct):
    type: str = ""
    text: _Text | None = None
    elements: Sequence[_Button] = ()


class _Message(msgspec.Struct):
    blocks: Sequence[_Block] = ()


class DemoInbox:
    """Prints the title of each notice and its first link."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout

    def receive(self, body: bytes) -> None:
        """Raises ValueError for anything but a message."""
        message = msgspec.json.decode(body, type=_Message)
        print("\n".join(_describe(message)), file=self._out, flush=True)


def _describe(message: _Message) -> Iterator[str]:
    for block in message.blocks:
        if block.type == "header" and block.text:
            yield f"* {block.text.text}"
        for button in block.elements[:1]:
            yield f"  {button.text.text}: {button.url}"


MAX_LOAD_BYTES, MAX_OBJECT_BYTES = 4096, 1 << 20
JSON_TYPE = "application/json"
_T = TypeVar("_T")


class DirectApi(ApiServer):
    """Reads objects of a simulated cluster without HTTP: the first cycle of the demo reads hundreds of them."""

    def __init__(self, cluster: SimulatedCluster, url: str) -> None:
        super().__init__(url)
        self._cluster = cluster

    def read_json(
        self, path: str, kind: type[_T], *, limit_bytes: int | None = None, accept: str = "application/json"
    ) -> _T:
        """Raises ObjectError."""
        del limit_bytes, accept
        response = self._cluster.handle(ApiRequest("GET", path))
        if response.status != HTTPStatus.OK:
            fields = {"url": self.url, "path": path, "status": int(response.status), "reason": response.status.phrase}
            raise ObjectError(messages.BAD_STATUS, http_status=int(response.status), **fields)
        return msgspec.json.decode(response.body, type=kind)


@contextmanager
def serve_fleet(fleet: SimulatedFleet, *, control: DemoLoads | None = None) -> Iterator[list[str]]:
    """Serve on a free loopback port; yields the address of the metrics page of every node."""
    listening = open_loopback_socket()
    with _serve(listening, partial(_FleetHandler, fleet, control), name="simulated-fleet"):
        yield [f"{url_of(listening)}/{node.name}/metrics" for node in fleet.nodes]


def serve_cluster(
    cluster: SimulatedCluster, listening: socket.socket, *, inbox: DemoInbox | None = None
) -> AbstractContextManager[None]:
    """Serve on that socket, and close it; `inbox`: where notices are sent to."""
    return _serve(listening, partial(_ClusterHandler, cluster, inbox), name="simulated-cluster")


@contextmanager
def _serve(
    listening: socket.socket, make_handler: Callable[..., BaseHTTPRequestHandler], *, name: str
) -> Iterator[None]:
    server = _DemoServer(listening.getsockname(), make_handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listening
    thread = threading.Thread(target=server.serve_forever, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _DemoServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # clients may keep their connections open, as the scraper does

    def handle_error(self, request: object, client_address: object) -> None:
        """A client may close a connection during a response, as it does when the demo stops."""


class _LoopbackHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # the body follows its header without a delay of 40 ms

    def read_body(self, limit_bytes: int) -> bytes | None:
        """None if it is too long; what is refused is not read."""
        length = self.headers.get("Content-Length", "")
        if length.isdecimal() and int(length) <= limit_bytes:
            return self.rfile.read(int(length))
        self.close_connection = True
        return None

    def respond(self, status: HTTPStatus, body: bytes, content_type: str = JSON_TYPE) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """No access log: all nodes are scraped every few seconds."""


class _FleetHandler(_LoopbackHandler):
    def __init__(self, fleet: SimulatedFleet, control: DemoLoads | None, *connection: Any) -> None:
        self._fleet, self._control = fleet, control
        super().__init__(*connection)

    def do_GET(self) -> None:
        page = self._fleet.render(self.path)
        if page is None:
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            self.respond(HTTPStatus.OK, *page)

    def do_POST(self) -> None:
        """A request to the control; the whole server is of no use to a web page without the token."""
        control = self._control
        self.close_connection = True  # what is refused is not read
        if control is None or self.path != CONTROL_PATH:
            self.send_error(HTTPStatus.NOT_FOUND)
        elif not control.is_token(self.headers.get("Authorization", "")):
            self.send_error(HTTPStatus.UNAUTHORIZED)
        elif (body := self.read_body(MAX_LOAD_BYTES)) is None:
            self.send_error(HTTPStatus.BAD_REQUEST)
        else:
            try:
                self.respond(HTTPStatus.OK, control.handle(body))
            except ConfigurationError as error:
                self.respond(HTTPStatus.BAD_REQUEST, msgspec.json.encode({"error": str(error)}))


class _ClusterHandler(_LoopbackHandler):
    def __init__(self, cluster: SimulatedCluster, inbox: DemoInbox | None, *connection: Any) -> None:
        self._cluster, self._inbox = cluster, inbox
        super().__init__(*connection)

    def do_GET(self) -> None:
        self._handle(b"")

    def do_POST(self) -> None:
        """A web page cannot send JSON to another origin without asking, and nobody answers that it may."""
        is_json = "json" in self.headers.get("Content-Type", "")
        body = self.read_body(MAX_OBJECT_BYTES if is_json else -1)
        if body is None:
            self.send_error(HTTPStatus.BAD_REQUEST)
        elif self.path != INBOX_PATH or self._inbox is None:
            self._handle(body)
        else:
            try:
                self._inbox.receive(body)
            except ValueError:
                self.send_error(HTTPStatus.BAD_REQUEST)
            else:
                self.respond(HTTPStatus.OK, b'"ok"')

    def do_PATCH(self) -> None:
        self.do_POST()

    def _handle(self, body: bytes) -> None:
        content_type = self.headers.get("Content-Type", "")
        response = self._cluster.handle(ApiRequest(self.command, self.path, body, content_type))
        self.respond(response.status, response.body)
