"""JSON that is nested more deeply than a decoder goes: of clients, of a tenant's objects, of a receiver."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gpusteward.analyzer.notify.channels import FeishuSender
from gpusteward.analyzer.notify.outbox.records import DeliveryError, PendingDelivery
from gpusteward.kubernetes.api import ApiServer, ObjectError
from gpusteward.kubernetes.writes import ApiWriter
from tests.analyzer.api.sample_results import small_result
from tests.analyzer.api.server import running_api
from tests.attacks.victims import Victim, status_of

pytestmark = pytest.mark.slow

NESTED = b'{"a":' + b"[" * 20_000 + b"]" * 20_000 + b"}"


class Nested(BaseHTTPRequestHandler):
    """An API server or a receiver that answers everything with it. etcd keeps an object that is nested 10,000 times."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(NESTED)))
        self.end_headers()
        self.wfile.write(NESTED)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    do_PATCH = do_POST

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Nested) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("path", ["/api/v1/replay", "/api/v1/session", "/config/update"])
def test_a_body_is_refused(analyzer: Victim, path: str):
    bodies = (NESTED, b"[" * 60_000, json.dumps({"policy": "[" * 20_000}).encode())
    with analyzer.attacked(cpu_seconds=0.5):
        for body in bodies:
            response = analyzer.post(path, body, "Content-Type: application/json")
            assert 200 <= status_of(response) < 500, response


def test_a_cursor_is_refused():
    cursor = base64.urlsafe_b64encode(NESTED[:15_000]).decode().rstrip("=")
    with running_api(small_result()) as api:
        assert api.get(f"/api/v1/workloads?cursor={cursor}").status == 422


def test_an_object_of_a_tenant_is_one_that_cannot_be_read(url: str):
    with pytest.raises(ObjectError):
        ApiServer(url).read_json("/apis/ray.io/v1/namespaces/a/rayclusters/b", dict)
    with pytest.raises(ObjectError):
        ApiWriter(url).read_json("/apis/ray.io/v1/namespaces/a/rayclusters/b", dict)


def test_a_response_of_a_receiver_is_a_delivery_that_failed(url: str):
    delivery = PendingDelivery(1, "a", "b", "notice", "c", headers={}, body="d", created_ms=0, attempts=0)
    with pytest.raises(DeliveryError, match="unexpected response"):
        FeishuSender(url).send(delivery)
