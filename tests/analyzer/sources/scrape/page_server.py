"""Pages as exporters would have served them, and servers that serve them well or badly."""

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.source import ScrapeSource
from tests.analyzer.engines import Sample
from tests.analyzer.histories import STEP, WINDOW

_TARGET = re.compile(r',?instance="([^"]*)",job="[^"]*"')


def pages_of(samples: Iterable[Sample]) -> Iterator[tuple[str, bytes, float]]:
    """What each target served at each moment: the samples without what the engine added to them."""
    pages: dict[tuple[float, str], list[str]] = {}
    for name, labels, value, at in samples:
        found = _TARGET.search(labels)
        assert found is not None
        lines = pages.setdefault((at, found[1]), [])
        if name != "up":
            lines.append(f"{name}{_TARGET.sub('', labels)} {value!r}\n")
    for (at, target), lines in sorted(pages.items()):
        yield target, "".join(lines).encode(), at


def fed_source(samples: Iterable[Sample], *, interval: float = STEP, window: float = WINDOW) -> ScrapeSource:
    """A source that scraped these, without a network."""
    source = ScrapeSource(ScrapeSettings(interval=interval, kubernetes="never"), window_seconds=window)
    for target, page, at in pages_of(samples):
        source.ingest(target, page, at)
    return source


class PageServer(ThreadingHTTPServer):
    """Serves pages by path; what is not there is a 404, what is None hangs."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pages: dict[str, bytes | None] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.over = threading.Event()

    def address(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is what some of these tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: PageServer

    def do_GET(self) -> None:
        self.server.asked.append((self.path, dict(self.headers)))
        page = self.server.pages.get(self.path, b"")
        if page is None:
            self.server.over.wait(60)
            self.close_connection = True
            return
        self.send_response_only(200 if self.path in self.server.pages else 404)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        """Tests are quiet."""


@contextmanager
def serving_pages(pages: Mapping[str, bytes | None]) -> Iterator[PageServer]:
    server = PageServer()
    server.pages |= pages
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
