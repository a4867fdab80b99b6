"""Simulated nodes that can be asked: pages made by the agent's own dialects, and snapshots, served over HTTP."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

import msgspec

from gpusteward.agent.dialects.dcgm import DcgmDialect
from gpusteward.agent.dialects.dcgm_options import DcgmOptions
from gpusteward.agent.dialects.native import NativeDialect
from gpusteward.agent.fields.field_list import default_fields
from gpusteward.agent.usage_counters import UsageCounters
from gpusteward.core.exposition import TEXT_TYPE, Family, LabelCache, render_page
from gpusteward.simulate.nodes import SimulatedNode

LONGEST_GAP_SECONDS = 120.0
PAGES = ("metrics", "snapshot")


class Answer(NamedTuple):
    """A page of a node."""

    body: bytes
    content_type: str


class Speaker:
    """One node, telling about itself as its agent would."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self._meters = UsageCounters(longest_gap_seconds=LONGEST_GAP_SECONDS)
        self._labels = LabelCache()
        options = DcgmOptions(hostname=node.name)
        self._dialects = (
            DcgmDialect(options, default_fields(), labels=self._labels),
            NativeDialect(self._labels),
        )
        self._lock = threading.Lock()

    def speak(self, at: float) -> bytes:
        """The page of a moment. Moments must rise: counters count from one to the next."""
        with self._lock:
            self._labels.start_cycle()
            view = self._meters.advance(self._node.snapshot(at))
            families: list[Family] = [family for each in self._dialects for family in each.families(view)]
            return render_page(families).text

    def show(self, at: float) -> bytes:
        """Who is on its GPUs, as an agent's /snapshot tells it; what is counted is left alone."""
        with self._lock:
            return msgspec.json.encode(self._node.snapshot(at))


class Park:
    """All nodes, each under its name."""

    def __init__(self, nodes: Sequence[SimulatedNode], *, patience_seconds: float) -> None:
        """`patience_seconds`: how long who asks too early is kept waiting for the park to open."""
        self.nodes = nodes
        self._patience = patience_seconds
        self._speakers = {node.name: Speaker(node) for node in nodes}
        self._is_open = threading.Event()

    def open(self) -> None:
        """Answer from now on: who asks before is kept waiting."""
        self._is_open.set()

    def speak(self, name: str, at: float) -> bytes:
        return self._speakers[name].speak(at)

    def answer(self, path: str) -> Answer | None:
        """`/NODE/metrics` or `/NODE/snapshot` as of now; None: there is no such one, or not yet."""
        name, _, page = path.partition("?")[0].strip("/").rpartition("/")
        if name not in self._speakers or page not in PAGES or not self._is_open.wait(self._patience):
            return None
        if page == "snapshot":
            return Answer(self._speakers[name].show(time.time()), "application/json")
        return Answer(self.speak(name, time.time()), TEXT_TYPE)


@contextmanager
def serve_park(park: Park) -> Iterator[list[str]]:
    """Serve on a free port of loopback; gives the address of every node's page."""
    server = _ParkServer(("127.0.0.1", 0), _Handler)
    server.park = park
    thread = threading.Thread(target=server.serve_forever, name="park", daemon=True)
    thread.start()
    try:
        yield [f"http://127.0.0.1:{server.server_port}/{node.name}/metrics" for node in park.nodes]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _ParkServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # connections are kept open by who scrapes
    request_queue_size = 128  # all nodes are scraped at once
    park: Park

    def handle_error(self, request: object, client_address: object) -> None:
        """Who scrapes may leave in the middle of an answer: at the end of the demo it does."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _ParkServer

    def do_GET(self) -> None:
        answer = self.server.park.answer(self.path)
        if answer is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nobody wants to read 40 lines every 15 seconds."""
