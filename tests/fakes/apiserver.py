"""An API server on the loopback, for faults that a real one does not show and for pods with given uids.

For all else there is a real one: `tests/kubernetes`. This one lists and watches pods, and fails in named ways on
request.

    with FakeApiServer() as server:
        server.add_pod(pod("trainer"))
        server.gone_next_watch = True
"""

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]


def pod(
    name: str,
    *,
    namespace: str = "ml",
    uid: str = "",
    node: str = "node-a",
    phase: str = "Running",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    owner: tuple[str, str] | None = None,
    containers: tuple[str, ...] = ("main",),
) -> Json:
    """A pod as the API server returns it, with fields that are not used."""
    uid = uid or f"uid-of-{name}"
    references = (
        [{"apiVersion": "v1", "kind": owner[0], "name": owner[1], "uid": "o", "controller": True}] if owner else []
    )
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "labels": labels or {},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x" * 500} | (annotations or {}),
            "ownerReferences": references,
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
        },
        "spec": {"nodeName": node, "containers": [{"name": each, "image": "cuda"} for each in containers]},
        "status": {
            "phase": phase,
            "startTime": "2026-11-15T20:00:00Z",
            "containerStatuses": [
                {"name": each, "containerID": f"containerd://{uid}-{each}", "state": {"running": {}}}
                for each in containers
            ],
        },
    }


class FakeApiServer:
    """Pods of any node, their history as versions, and the faults below."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.forbidden = False  # 403 to everything, as without RBAC
        self.redirects = False  # 302 to everything
        self.not_found: bytes | None = None  # sent with 404 to everything
        self.gone_next_watch = False  # the next watch is refused with HTTP 410
        self.gone_next_continue = False  # the next further page of a list is refused with HTTP 410
        self.page_size = 500  # upper limit of pods on one page of a list
        self.raw_list: bytes | None = None  # sent in place of a list
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.open_watches = 0
        self._pods: dict[tuple[str, str], Json] = {}
        self._events: list[tuple[int, str, Json]] = []
        self._version = 100
        self._changed = threading.Condition()
        self._raw: list[bytes] = []  # to be sent on every open watch
        self._cuts = 0  # how often watches have been cut
        self._is_down = False
        self.port = 0
        self._listen()
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"

    def __enter__(self) -> "FakeApiServer":
        return self

    def __exit__(self, *_: object) -> None:
        self._close_connections()

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        """Down for a while: connections are refused, watches closed; then up on the same port with the same data."""
        self._close_connections()
        yield
        self._listen()

    def _listen(self) -> None:
        self._is_down = False
        self._http = ThreadingHTTPServer(("127.0.0.1", self.port), self._handler())
        self._http.daemon_threads = True
        if self._tls is not None:
            self._http.socket = self._tls.wrap_socket(
                self._http.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port = self._http.server_address[1]
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def _close_connections(self) -> None:
        self._is_down = True  # also for a watch whose request is still on its way
        self.close_watches()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def add_pod(self, item: Json, kind: str = "ADDED") -> None:
        """Add or change a pod; watches see it."""
        with self._changed:
            self._version += 1
            item["metadata"]["resourceVersion"] = str(self._version)
            self._pods[item["metadata"]["namespace"], item["metadata"]["name"]] = item
            self._note(kind, item)

    def modify_pod(self, item: Json) -> None:
        self.add_pod(item, "MODIFIED")

    def delete_pod(self, name: str, namespace: str = "ml") -> None:
        with self._changed:
            self._version += 1
            item = self._pods.pop((namespace, name))
            self._note("DELETED", item | {"metadata": item["metadata"] | {"resourceVersion": str(self._version)}})

    def forget_pod(self, name: str, namespace: str = "ml") -> None:
        """A deletion without a watch event: only a new list shows it."""
        with self._changed:
            del self._pods[namespace, name]

    def send_bookmark(self) -> None:
        with self._changed:
            self._version += 1
            version = {"resourceVersion": str(self._version)}
            self._note("BOOKMARK", {"kind": "Pod", "metadata": version, "spec": {"containers": None}, "status": {}})

    def send_error_event(self, code: int, message: str = "too old resource version") -> None:
        self.send_raw(
            json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": code, "message": message}}).encode()
            + b"\n"
        )

    def send_raw(self, line: bytes) -> None:
        """Bytes on every open watch, as they are."""
        with self._changed:
            self._raw.append(line)
            self._changed.notify_all()

    def close_watches(self, *, mid_line: bool = False) -> None:
        """Close every open watch, on request in the middle of a line."""
        if mid_line:
            self.send_raw(b'{"type":"ADDED","object":{"metadata":{"na')
        with self._changed:
            self._cuts += 1
            self._changed.notify_all()

    @property
    def version(self) -> int:
        return self._version

    def _note(self, kind: str, item: Json) -> None:
        self._events.append((self._version, kind, item))
        self._changed.notify_all()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # the body follows its header without a delay of 40 ms

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                with contextlib.suppress(OSError):
                    server._respond(self)

        return Handler

    def _respond(self, request: BaseHTTPRequestHandler) -> None:
        self.requests.append(request.path)
        self.headers.append(dict(request.headers))
        query = {key: values[0] for key, values in parse_qs(urlsplit(request.path).query).items()}
        for is_on, code in ((self.forbidden, 403), (self.redirects, 302)):
            if is_on:
                return _refuse(request, code, "pods is forbidden: User cannot list resource")
        if self.not_found is not None:
            return _send_bytes(request, self.not_found, 404)
        if query.get("watch") == "true":
            return self._send_watch(request, query)
        return self._send_list(request, query, urlsplit(request.path).path)

    def _send_list(self, request: BaseHTTPRequestHandler, query: dict[str, str], path: str) -> None:
        if self.raw_list is not None:
            return _send_bytes(request, self.raw_list)
        if "continue" in query and self.gone_next_continue:
            self.gone_next_continue = False
            return _refuse(request, 410, "The provided continue parameter is too old")
        with self._changed:
            items = [item for item in self._pods.values() if _is_on(item, query) and _is_in(item, path)]
            version = str(self._version)
        start = int(query.get("continue", 0))
        end = start + min(int(query.get("limit", 500)), self.page_size)
        metadata = {"resourceVersion": version} | ({"continue": str(end)} if end < len(items) else {})
        return _send(request, {"kind": "PodList", "metadata": metadata, "items": items[start:end]})

    def _send_watch(self, request: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
        if self.gone_next_watch:
            self.gone_next_watch = False
            return _refuse(request, 410, "too old resource version")
        request.send_response(200)
        request.send_header("Content-Type", "application/json")
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        with self._changed:  # a test that sees it open may close it or send events at once
            self.open_watches += 1
            cuts = self._cuts
            lines = self._lines(int(query["resourceVersion"]), query, cuts=cuts, sent=len(self._raw))
        try:
            for line in lines:
                request.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            if not self._is_down and self._cuts == cuts:
                request.wfile.write(b"0\r\n\r\n")
        finally:
            self.open_watches -= 1
            request.close_connection = True
            with contextlib.suppress(OSError):
                request.connection.shutdown(socket.SHUT_RDWR)
        return None

    def _lines(self, version: int, query: dict[str, str], *, cuts: int, sent: int) -> Iterator[bytes]:
        end = time.monotonic() + float(query.get("timeoutSeconds", 300))
        while time.monotonic() < end:
            with self._changed:
                while not (self._is_down or self._cuts > cuts or len(self._raw) > sent or self._last() > version):
                    if not self._changed.wait(end - time.monotonic()):
                        break
                lines = [_event(kind, item) for at, kind, item in self._events if at > version and _is_on(item, query)]
                version, raw, sent = max(version, self._last()), self._raw[sent:], len(self._raw)
                is_cut = self._is_down or self._cuts > cuts
            yield from lines
            yield from raw
            if is_cut:
                return

    def _last(self) -> int:
        return self._events[-1][0] if self._events else 0


def _is_on(item: Json, query: dict[str, str]) -> bool:
    node = query.get("fieldSelector", "").removeprefix("spec.nodeName=")
    return not node or item["spec"].get("nodeName", node) == node


def _is_in(item: Json, path: str) -> bool:
    """Whether a pod is in the namespace of a path, if it names one."""
    _, found, namespace = path.partition("/namespaces/")
    return not found or item["metadata"]["namespace"] == namespace.partition("/")[0]


def _event(kind: str, item: Json) -> bytes:
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


def _refuse(request: BaseHTTPRequestHandler, code: int, message: str) -> None:
    _send(request, {"kind": "Status", "code": code, "message": message}, code)


def _send(request: BaseHTTPRequestHandler, body: Json, code: int = 200) -> None:
    _send_bytes(request, json.dumps(body).encode(), code)


def _send_bytes(request: BaseHTTPRequestHandler, body: bytes, code: int = 200) -> None:
    request.send_response(code)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(body)))
    if code == 302:
        request.send_header("Location", "http://127.0.0.1:9/elsewhere")
    request.end_headers()
    request.wfile.write(body)
