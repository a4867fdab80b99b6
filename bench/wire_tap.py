"""Stands between the analyzer and its engine and notes what it is asked, so that others can ask the very same."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

PASSED_ON = ("Content-Type", "Accept-Encoding")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, as it was on the wire."""

    method: str
    path: str  # with its query
    body: str  # a form, encoded


@dataclass(slots=True)
class Tap:
    url: str
    heard: list[Asked] = field(default_factory=list)


@contextmanager
def tap_wire(engine_url: str) -> Iterator[Tap]:
    """A proxy to the engine on a free port of the loopback."""
    tap = Tap("")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _make_handler(urlsplit(engine_url).netloc, tap))
    server.daemon_threads = True
    tap.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield tap
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _make_handler(engine: str, tap: Tap) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._pass_on()

        def do_POST(self) -> None:
            self._pass_on()

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            tap.heard.append(Asked(self.command, self.path, body.decode()))
            connection = http.client.HTTPConnection(engine, timeout=120)
            headers = {name: self.headers[name] for name in PASSED_ON if name in self.headers}
            connection.request(self.command, self.path, body or None, headers)
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers.get("Content-Type", ""))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Not a word: the run itself says how far it is."""

    return Handler
