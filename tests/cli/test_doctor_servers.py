"""Checks of permissions and clocks, against a server with chosen responses."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from gpusteward.cli.api.client import Client, Peer, make_client
from gpusteward.cli.doctor import installation, servers
from gpusteward.cli.doctor.check_results import CheckResult, CheckStatus


class ReviewServer(ThreadingHTTPServer):
    """Responds to access reviews like an API server. `ahead`: seconds that its clock is ahead."""

    daemon_threads = True

    def __init__(self, *, allowed: tuple[str, ...] = (), ahead: float = 0.0, status: int = 201) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.allowed, self.ahead, self.status = allowed, ahead, status
        self.reviews: list[dict[str, object]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: ReviewServer

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.reviews.append({"path": self.path, **review})
        verb = review["spec"]["resourceAttributes"]["verb"]
        self._send({"status": {"allowed": verb in self.server.allowed}}, self.server.status)

    def do_GET(self) -> None:
        self._send({}, 200)

    def _send(self, value: object, status: int) -> None:
        body = json.dumps(value).encode()
        self.send_response_only(status)
        self.send_header("Date", formatdate(time.time() + self.server.ahead, usegmt=True))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(server: ReviewServer) -> Iterator[ReviewServer]:
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def client_of(server: ReviewServer) -> Client:
    return make_client(Peer.API_SERVER, server.url)


def test_a_pod_that_may_read_pods_is_ok() -> None:
    with serving(ReviewServer(allowed=("list", "watch"))) as server:
        (found,) = installation.check_permissions(client_of(server))
    assert found.status is CheckStatus.OK
    assert {str(one["path"]) for one in server.reviews} == {installation.REVIEWS}
    assert all(one["kind"] == "SelfSubjectAccessReview" for one in server.reviews)


def test_a_denied_verb_is_reported_with_the_role_that_grants_it() -> None:
    with serving(ReviewServer(allowed=("get", "list"))) as server:
        (found,) = installation.check_permissions(client_of(server))
    assert found.status is CheckStatus.FAIL
    assert found.finding == "may not watch pods"
    assert "ClusterRole" in found.mend


@pytest.mark.parametrize("status", [401, 403, 500])
def test_an_api_server_that_refuses_the_review_is_a_failure(status: int) -> None:
    with serving(ReviewServer(status=status)) as server:
        (found,) = installation.check_permissions(client_of(server))
    assert found.status is CheckStatus.FAIL
    assert str(status) in found.finding


def test_outside_of_a_cluster_permissions_are_skipped() -> None:
    found = installation.find_api_server({}, None)
    assert isinstance(found, CheckResult)
    assert found.status is CheckStatus.SKIP


def test_a_pod_without_a_token_is_a_failure(tmp_path: Path) -> None:
    found = installation.find_api_server({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, None, account=tmp_path)
    assert isinstance(found, CheckResult)
    assert found.status is CheckStatus.FAIL
    assert "automountServiceAccountToken" in found.mend


def test_in_a_pod_the_service_account_is_used(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    found = installation.find_api_server({"KUBERNETES_SERVICE_HOST": "fd00::1"}, None, account=tmp_path)
    assert isinstance(found, Client)
    assert found.url == "https://[fd00::1]"
    assert found.authorization == "Bearer abc"
    assert "abc" not in repr(found)


@pytest.mark.parametrize(("ahead", "status"), [(0, "ok"), (3, "ok"), (-20, "warn"), (3600, "fail")])
def test_a_clock_that_differs_is_reported_with_its_skew(ahead: float, status: str) -> None:
    with serving(ReviewServer(ahead=ahead)) as server:
        (found,) = servers.check_clocks({"Prometheus": client_of(server)})
    assert found.status == status
    if status != "ok":
        text = found.finding
        assert text.startswith("the clock of Prometheus differs from this machine by ")
        assert abs(float(text.split()[-2]) - ahead) <= 2


def test_the_clocks_of_unreachable_servers_are_skipped() -> None:
    client = make_client(Peer.ANALYZER, "http://127.0.0.1:1", timeout_seconds=1)
    assert [one.status for one in servers.check_clocks({"analyzer": client})] == [CheckStatus.SKIP]
