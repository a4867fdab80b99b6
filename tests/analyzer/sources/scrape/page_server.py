"""Pages as exporters serve them, and a server that serves them or fails."""

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.source import ScrapeSource
from tests.analyzer.engines import Sample
from tests.analyzer.scraped_history import STEP, WINDOW

_TARGET = re.compile(r',?instance="([^"]*)",job="[^"]*"')


def pages_of(samples: Iterable[Sample]) -> Iterator[tuple[str, bytes, float]]:
    """The page of each target at each time: the samples without the labels that the engine added."""
    pages: dict[tuple[float, str], list[str]] = {}
    for name, labels, value, at in samples:
        target, own = _split_target(labels)
        lines = pages.setdefault((at, target), [])
        if name != "up":
            lines.append(f"{name}{own} {value!r}\n")
    for (at, target), lines in sorted(pages.items()):
        yield target, "".join(lines).encode(), at


@cache
def _split_target(labels: str) -> tuple[str, str]:
    """The target, and the labels on its page."""
    found = _TARGET.search(labels)
    assert found is not None
    return found[1], _TARGET.sub("", labels)


def fed_source(samples: Iterable[Sample], *, interval: float = STEP, window: float = WINDOW) -> ScrapeSource:
    """A source with these samples, without a network."""
    source = ScrapeSource(ScrapeSettings(interval=interval, selector=""), window_seconds=window)
    for target, page, at in pages_of(samples):
        source.ingest(target, page, at)
    return source


class PageServer(ThreadingHTTPServer):
    """Serves pages by path; others are 404, None never responds."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pages: dict[str, bytes | None] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.stopping = threading.Event()
        self.respond: Callable[[BaseHTTPRequestHandler], bool] = lambda _: False  # True if it has responded

    def address(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that disconnect are part of some tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # the body follows its header without a delay of 40 ms
    server: PageServer

    def do_GET(self) -> None:
        self.server.requests.append((self.path, dict(self.headers)))
        if self.server.respond(self):
            return
        page = self.server.pages.get(self.path, b"")
        if page is None:
            self.server.stopping.wait(60)
            self.close_connection = True
            return
        self.send_response_only(200 if self.path in self.server.pages else 404)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        """No log lines in tests."""


@contextmanager
def serving_pages(pages: Mapping[str, bytes | None]) -> Iterator[PageServer]:
    server = PageServer()
    server.pages |= pages
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.stopping.set()
        server.shutdown()
        thread.join()
        server.server_close()


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timeout"
        time.sleep(0.02)
