"""A reverse proxy on loopback: serves an analyzer below a base path, and says who the person is."""

import http.client
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

_HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    upstream = ""
    prefix = ""
    identity: Mapping[str, str] = {}
    source_address = "127.0.0.1"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    server: _Server

    def do_GET(self) -> None:
        server = self.server
        if not server.upstream:
            self.close_connection = True
            return
        if not self.path.startswith(server.prefix + "/"):
            self.send_error(404)
            return
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else None
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        connection = http.client.HTTPConnection(server.upstream, timeout=60, source_address=(server.source_address, 0))
        try:
            path = self.path.removeprefix(server.prefix)
            connection.request(self.command, path, body, {**headers, **server.identity})
            self._answer(connection.getresponse())
        except (OSError, http.client.HTTPException):
            self.close_connection = True  # the analyzer has stopped, or the browser has left
        finally:
            connection.close()

    do_POST = do_DELETE = do_HEAD = do_GET

    def _answer(self, response: http.client.HTTPResponse) -> None:
        self.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        self.end_headers()
        while piece := response.read1(65536):  # events arrive one by one
            self.wfile.write(piece)
            self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


@dataclass
class Proxy:
    """A running proxy. While it points nowhere it closes every connection, as if the analyzer were down."""

    url: str
    _server: _Server

    def point_to(self, url: str) -> None:
        """Empty: nowhere."""
        self._server.upstream = urlsplit(url).netloc


@contextmanager
def running_proxy(
    url: str, *, prefix: str = "", identity: Mapping[str, str] | None = None, source_address: str = "127.0.0.1"
) -> Iterator[Proxy]:
    """`prefix` is removed from paths; `identity`: headers that are added."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.upstream, server.prefix = urlsplit(url).netloc, prefix
    server.identity, server.source_address = identity or {}, source_address
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Proxy(f"http://127.0.0.1:{server.server_port}{prefix}", server)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
