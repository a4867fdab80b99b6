"""A proxy between the analyzer and its engine that records requests, so that curl can send the same ones."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

FORWARDED_HEADERS = ("Content-Type", "Accept-Encoding")


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One HTTP request."""

    method: str
    path: str  # with its query
    body: str  # a form, encoded


@dataclass(slots=True)
class RecordingProxy:
    url: str
    requests: list[RecordedRequest] = field(default_factory=list)


@contextmanager
def record_requests(engine_url: str) -> Iterator[RecordingProxy]:
    """A proxy to the engine on a free port of the loopback."""
    proxy = RecordingProxy("")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _make_handler(urlsplit(engine_url).netloc, proxy))
    server.daemon_threads = True
    proxy.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _make_handler(engine: str, proxy: RecordingProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # the body follows its header without a delay of 40 ms

        def do_GET(self) -> None:
            self._forward()

        def do_POST(self) -> None:
            self._forward()

        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            proxy.requests.append(RecordedRequest(self.command, self.path, body.decode()))
            connection = http.client.HTTPConnection(engine, timeout=120)
            headers = {name: self.headers[name] for name in FORWARDED_HEADERS if name in self.headers}
            connection.request(self.command, self.path, body or None, headers)
            response = connection.getresponse()
            content = response.read()
            connection.close()
            self.send_response(response.status)
            self.send_header("Content-Type", response.headers.get("Content-Type", ""))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """The bench reports its own progress."""

    return Handler
