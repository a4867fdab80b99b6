"""HTTP server for simulated nodes: metrics pages of the agent's dialects, snapshots, and requests to the simulation."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple, Protocol

import msgspec

from gpusteward.agent.dialects.dcgm import DcgmDialect
from gpusteward.agent.dialects.dcgm_options import DcgmOptions
from gpusteward.agent.dialects.native import NativeDialect
from gpusteward.agent.field_list import default_fields
from gpusteward.agent.usage_counters import UsageCounters
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.exposition import TEXT_TYPE, Family, LabelCache, render_page
from gpusteward.local.demo_control import CONTROL_PATH
from gpusteward.simulate.nodes import SimulatedNode

LONGEST_GAP_SECONDS = 120.0
PAGES = ("metrics", "snapshot")
MAX_REQUEST_BYTES = 4096


class Page(NamedTuple):
    """The body of a response."""

    body: bytes
    content_type: str


class NodeServer:
    """Renders the pages of one node as its agent would."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self._meters = UsageCounters(longest_gap_seconds=LONGEST_GAP_SECONDS)
        self._labels = LabelCache()
        options = DcgmOptions(hostname=node.name)
        dcgm = DcgmDialect(options, default_fields(), labels=self._labels)
        self._dialects = (dcgm, NativeDialect(self._labels, beside=dcgm))
        self._lock = threading.Lock()

    @property
    def node(self) -> SimulatedNode:
        return self._node

    def replace_node(self, node: SimulatedNode) -> None:
        """From now on the node is in this state; its counters continue."""
        with self._lock:
            self._node = node

    def render_metrics(self, at: float) -> bytes:
        """The metrics page at a time. Times must rise: counters add up from call to call."""
        with self._lock:
            self._labels.start_cycle()
            view = self._meters.advance(self._node.snapshot(at))
            families: list[Family] = [family for each in self._dialects for family in each.families(view)]
            return render_page(families).text

    def render_snapshot(self, at: float) -> bytes:
        """The agent's /snapshot; it changes no counter."""
        with self._lock:
            return msgspec.json.encode(self._node.snapshot(at))


class SimulatedFleet:
    """All nodes by name. Requests wait until the fleet is ready."""

    def __init__(self, nodes: Sequence[SimulatedNode], *, ready_timeout_seconds: float) -> None:
        self._ready_timeout = ready_timeout_seconds
        self._servers = {node.name: NodeServer(node) for node in nodes}
        self._is_ready = threading.Event()

    @property
    def nodes(self) -> list[SimulatedNode]:
        return [server.node for server in self._servers.values()]

    def replace_node(self, node: SimulatedNode) -> None:
        """From now on the node of that name is in this state; its counters continue."""
        self._servers[node.name].replace_node(node)

    def set_ready(self) -> None:
        self._is_ready.set()

    def render_metrics(self, name: str, at: float) -> bytes:
        return self._servers[name].render_metrics(at)

    def render(self, path: str) -> Page | None:
        """The current page for `/NODE/metrics` or `/NODE/snapshot`; None for other paths, and if not ready in time."""
        name, _, page = path.partition("?")[0].strip("/").rpartition("/")
        if name not in self._servers or page not in PAGES or not self._is_ready.wait(self._ready_timeout):
            return None
        if page == "snapshot":
            return Page(self._servers[name].render_snapshot(time.time()), "application/json")
        return Page(self.render_metrics(name, time.time()), TEXT_TYPE)


class Control(Protocol):
    """Requests that change the simulation."""

    def is_token(self, authorization: str) -> bool: ...

    def handle(self, body: bytes) -> bytes:
        """The response. Raises ConfigurationError."""
        ...


@contextmanager
def serve_fleet(fleet: SimulatedFleet, *, control: Control | None = None) -> Iterator[list[str]]:
    """Serve on a free loopback port; yields the address of the metrics page of every node."""
    server = _FleetServer(("127.0.0.1", 0), _Handler)
    server.fleet, server.control = fleet, control
    thread = threading.Thread(target=server.serve_forever, name="simulated-fleet", daemon=True)
    thread.start()
    try:
        yield [f"http://127.0.0.1:{server.server_port}/{node.name}/metrics" for node in fleet.nodes]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _FleetServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # the scraper keeps its connections open
    request_queue_size = 128  # all nodes are scraped at once
    fleet: SimulatedFleet
    control: Control | None

    def handle_error(self, request: object, client_address: object) -> None:
        """The scraper may close a connection during a response, as it does when the demo stops."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # the body follows its header without a delay of 40 ms
    server: _FleetServer

    def do_GET(self) -> None:
        page = self.server.fleet.render(self.path)
        if page is None:
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            self._send(HTTPStatus.OK, page)

    def do_POST(self) -> None:
        """A request to the control; the whole server is of no use to a web page without the token."""
        control, length = self.server.control, self.headers.get("Content-Length", "")
        self.close_connection = True  # what is refused is not read
        if control is None or self.path != CONTROL_PATH:
            self.send_error(HTTPStatus.NOT_FOUND)
        elif not control.is_token(self.headers.get("Authorization", "")):
            self.send_error(HTTPStatus.UNAUTHORIZED)
        elif not length.isdecimal() or int(length) > MAX_REQUEST_BYTES:
            self.send_error(HTTPStatus.BAD_REQUEST)
        else:
            self._send(*self._control(control, self.rfile.read(int(length))))

    def _control(self, control: Control, body: bytes) -> tuple[HTTPStatus, Page]:
        try:
            return HTTPStatus.OK, Page(control.handle(body), "application/json")
        except ConfigurationError as error:
            return HTTPStatus.BAD_REQUEST, Page(msgspec.json.encode({"error": str(error)}), "application/json")

    def _send(self, status: HTTPStatus, page: Page) -> None:
        self.send_response(status)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        self.wfile.write(page.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """No access log: all nodes are scraped every few seconds."""
