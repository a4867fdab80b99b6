"""HTTP server for simulated nodes: metrics pages of the agent's dialects, snapshots, and the loads that
`gpusteward demo load` asks for."""

import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Annotated, NamedTuple

import msgspec

from gpusteward.agent.dialects.dcgm import DcgmDialect
from gpusteward.agent.dialects.dcgm_options import DcgmOptions
from gpusteward.agent.dialects.native import NativeDialect
from gpusteward.agent.field_list import default_fields
from gpusteward.agent.usage_counters import UsageCounters
from gpusteward.core.containers import Workload
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.exposition import TEXT_TYPE, Family, LabelCache, render_page
from gpusteward.local.demo_control import CONTROL_PATH, MAX_MINUTES
from gpusteward.simulate.fleets import create_load_application
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


class LoadRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A load: in the pods of a workload, or in a new pod on a free GPU."""

    share_percent: Annotated[float, msgspec.Meta(gt=0, le=100)]
    minutes: Annotated[float, msgspec.Meta(gt=0, le=MAX_MINUTES)]
    workload: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class LoadedGpu(msgspec.Struct, frozen=True):
    """A GPU that the load uses."""

    node: str
    gpu: int


class StartedLoad(msgspec.Struct, frozen=True):
    """The workload in which the load runs, and its GPUs."""

    namespace: str
    kind: str
    name: str
    gpus: tuple[LoadedGpu, ...]


class DemoLoads:
    """Starts loads on the simulated nodes."""

    def __init__(self, fleet: SimulatedFleet) -> None:
        self.token = secrets.token_urlsafe()
        self._fleet = fleet
        self._count = 0
        self._lock = threading.Lock()

    def is_token(self, authorization: str) -> bool:
        return compare_digest(authorization.encode(), f"Bearer {self.token}".encode())

    def handle(self, body: bytes) -> bytes:
        """The response to a request. Raises ConfigurationError."""
        try:
            request = msgspec.json.decode(body, type=LoadRequest)
        except msgspec.MsgspecError as error:
            raise ConfigurationError(f"the load is invalid: {error}") from error
        return msgspec.json.encode(self.start(request, time.time()))

    def start(self, request: LoadRequest, now: float) -> StartedLoad:
        """Raises ConfigurationError if there is no such workload, or no free GPU."""
        with self._lock:
            return self._load_workload(request, now) if request.workload else self._add_pod(request, now)

    def _load_workload(self, request: LoadRequest, now: float) -> StartedLoad:
        workload = _choose(request.workload, self._list_workloads(now))
        gpus: list[LoadedGpu] = []
        for node in self._fleet.nodes:
            loaded = node.with_load_in(
                workload, ratio=request.share_percent / 100, since=now, until=now + 60 * request.minutes
            )
            if loaded is not node:
                self._fleet.replace_node(loaded)
                devices = enumerate(zip(node.devices, loaded.devices, strict=True))
                gpus += [LoadedGpu(node.name, index) for index, (before, after) in devices if before is not after]
        return StartedLoad(workload.namespace, workload.kind, workload.name, tuple(gpus))

    def _list_workloads(self, now: float) -> set[Workload]:
        held = (each.allocation.container.workload for node in self._fleet.nodes for each in node.ownerships(now))
        return {workload for workload in held if workload}

    def _add_pod(self, request: LoadRequest, now: float) -> StartedLoad:
        until = now + 60 * request.minutes
        node, index = self._find_free_gpu(now, until)
        self._count += 1
        application = create_load_application(self._count, ratio=request.share_percent / 100, since=now, until=until)
        self._fleet.replace_node(node.with_pod(index, application))
        workload = application.pod(0, 0).container.workload
        assert workload is not None
        return StartedLoad(workload.namespace, workload.kind, workload.name, (LoadedGpu(node.name, index),))

    def _find_free_gpu(self, now: float, until: float) -> tuple[SimulatedNode, int]:
        for node in self._fleet.nodes:
            for index, device in enumerate(node.devices):
                if device.is_free(now, until):
                    return node, index
        raise ConfigurationError(
            "no GPU of the demo is free for that long; name a workload with --workload (gpusteward "
            "idle lists some), or start the demo with more --nodes"
        )


def _choose(text: str, workloads: set[Workload]) -> Workload:
    found = [each for each in workloads if text in _list_names(each)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConfigurationError(f"no workload named {text!r} holds a GPU now; gpusteward top lists them")
    names = ", ".join(sorted(f"{each.namespace}/{each.kind}/{each.name}" for each in found))
    raise ConfigurationError(f"several workloads are named {text!r}: {names}; write one of these")


def _list_names(workload: Workload) -> tuple[str, ...]:
    """The forms in which `gpusteward explain` takes a workload."""
    namespace, kind, name = workload.namespace, workload.kind, workload.name
    return name, f"{namespace}/{name}", f"{kind}/{name}", f"{namespace}/{kind}/{name}"


@contextmanager
def serve_fleet(fleet: SimulatedFleet, *, control: DemoLoads | None = None) -> Iterator[list[str]]:
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
    control: DemoLoads | None

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

    def _control(self, control: DemoLoads, body: bytes) -> tuple[HTTPStatus, Page]:
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
