"""HTTP server of the simulated API server, and the same without HTTP for the analyzer of the demo; the channel of the
demo, which takes notices as an incoming webhook of Slack does, and prints them in the terminal."""

import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TextIO, TypeVar

import msgspec

from gpusteward.kubernetes.api import ApiServer, ObjectError
from gpusteward.local.api_requests import ApiRequest
from gpusteward.local.demo_control import INBOX_PATH
from gpusteward.local.simulated_cluster import SimulatedCluster
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


MAX_REQUEST_BYTES = 1 << 20
_JSON = "json"
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
def serve_cluster(
    cluster: SimulatedCluster, listening: socket.socket, *, inbox: DemoInbox | None = None
) -> Iterator[None]:
    """Serve on that socket, and close it; `inbox`: where notices are sent to."""
    server = _ClusterServer(listening.getsockname(), _Handler, bind_and_activate=False)
    server.socket.close()
    server.socket, server.cluster, server.inbox = listening, cluster, inbox
    thread = threading.Thread(target=server.serve_forever, name="simulated-cluster", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _ClusterServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # clients may keep their connections open
    cluster: SimulatedCluster
    inbox: DemoInbox | None

    def handle_error(self, request: object, client_address: object) -> None:
        """A client may close a connection during a response, as it does when the demo stops."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # the body follows its header without a delay of 40 ms
    server: _ClusterServer

    def do_GET(self) -> None:
        self._respond(b"")

    def do_PATCH(self) -> None:
        self._write()

    def do_POST(self) -> None:
        self._write()

    def _write(self) -> None:
        """A web page cannot send JSON to another origin without asking, and nobody answers that it may."""
        length, content_type = self.headers.get("Content-Length", ""), self.headers.get("Content-Type", "")
        if not length.isdecimal() or int(length) > MAX_REQUEST_BYTES or _JSON not in content_type:
            self.close_connection = True  # what is refused is not read
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        body, inbox = self.rfile.read(int(length)), self.server.inbox
        if self.path == INBOX_PATH and inbox is not None:
            self._receive(inbox, body)
        else:
            self._respond(body)

    def _receive(self, inbox: DemoInbox, body: bytes) -> None:
        try:
            inbox.receive(body)
        except ValueError:
            self.send_error(HTTPStatus.BAD_REQUEST)
        else:
            self._send(HTTPStatus.OK, b'"ok"')

    def _respond(self, body: bytes) -> None:
        content_type = self.headers.get("Content-Type", "")
        response = self.server.cluster.handle(ApiRequest(self.command, self.path, body, content_type))
        self._send(response.status, response.body)

    def _send(self, status: HTTPStatus, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """No access log."""
