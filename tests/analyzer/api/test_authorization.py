"""Which requests may read and which may write; what is forbidden comes first."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.requests import Request

from gpusteward.analyzer.api.authorization import is_local
from gpusteward.analyzer.settings.settings import Settings
from tests.analyzer.api.sample_results import small_result
from tests.analyzer.api.server import Api, running_api

VIEWER, OPERATOR, ADMIN = ("viewer-" + "v" * 20, "operator-" + "o" * 20, "admin-" + "a" * 20)
TOKENS = f"viewer: {VIEWER}\noperator: {OPERATOR}\nadmin: {ADMIN}\n"
READS = (
    "/",
    "/results",
    "/results/low",
    "/results/stats",
    "/metrics",
    "/config",
    "/api/v1/workloads",
    "/api/v1/events",
)
WRITES = (("GET", "/analyze"), ("POST", "/analyze"), ("POST", "/config/update"))


def settings(*, reads: str = "never", tokens: str = TOKENS) -> Settings:
    return Settings.model_validate({"server": {"anonymous_reads": reads, "tokens": tokens}})


@pytest.fixture(scope="module")
def closed() -> Iterator[Api]:
    with running_api(small_result(), settings=settings()) as running:
        yield running


@pytest.mark.parametrize("path", READS)
def test_never_reads_without_a_token_where_anonymous_reads_are_off(closed: Api, path: str):
    response = closed.get(path)
    assert (response.status, response.json["type"]) == (401, "urn:gpusteward:problem:unauthorized")
    assert response.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("path", [path for path in READS if path != "/api/v1/events"])
@pytest.mark.parametrize("token", [VIEWER, OPERATOR, ADMIN])
def test_every_role_may_read(closed: Api, path: str, token: str):
    assert closed.get(path, token=token).status == 200


@pytest.mark.parametrize(("method", "path"), WRITES)
def test_never_writes_on_loopback_without_a_token_once_tokens_are_set(method: str, path: str):
    with running_api(small_result(), settings=settings(reads="always")) as api:
        assert api.get(path, method=method).status == 401
        assert api.cycles.requested == []


@pytest.mark.parametrize(("method", "path"), WRITES)
def test_never_writes_on_loopback_while_the_tokens_file_is_empty(tmp_path: Path, method: str, path: str):
    """As the manifest comes: what kubectl forwards arrives as loopback."""
    (tmp_path / "tokens.yaml").write_text("# operator: TOKEN\n")
    server = {"anonymous_reads": "loopback", "tokens_file": tmp_path / "tokens.yaml"}
    with running_api(small_result(), settings=Settings.model_validate({"server": server})) as api:
        response = api.get(path, method=method)
        assert (response.status, "server.tokens_file" in response.json["detail"]) == (401, True)
        assert api.get("/results").status == 200
        assert api.cycles.requested == []


@pytest.mark.parametrize(("method", "path"), WRITES)
def test_never_writes_for_a_viewer(closed: Api, method: str, path: str):
    response = closed.get(path, method=method, token=VIEWER)
    assert (response.status, response.json["type"]) == (403, "urn:gpusteward:problem:forbidden")


@pytest.mark.parametrize(("method", "path"), WRITES)
@pytest.mark.parametrize("token", [OPERATOR, ADMIN])
def test_operators_and_admins_may_write(closed: Api, method: str, path: str, token: str):
    assert closed.get(path, method=method, token=token).status == 200


@pytest.mark.parametrize("path", ["/results", "/health"])
def test_health_is_open_for_probes_and_nothing_else_is(closed: Api, path: str):
    assert closed.get(path).status == (200 if path == "/health" else 401)


@pytest.mark.parametrize("header", ["Bearer wrong-token-of-some-length", "Basic dXNlcjpwYXNz", "Bearer", ""])
def test_unknown_credentials_are_refused_even_where_reading_needs_none(header: str):
    with running_api(small_result(), settings=settings(reads="always")) as api:
        response = api.get("/results", Authorization=header)
    assert response.status == 401
    assert b"wrong-token" not in response.body


def test_without_any_token_local_requests_may_read_and_write():
    with running_api(small_result(), settings=settings(reads="loopback", tokens="")) as api:
        assert api.get("/results").status == 200
        assert api.post("/analyze").status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "127.0.0.1"},
        {"Forwarded": "for=127.0.0.1"},
        {"Host": "gpus.example.com"},
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_no_header_makes_a_request_local_and_some_make_it_remote(headers: dict[str, str]):
    with running_api(small_result(), settings=settings(reads="loopback", tokens="")) as api:
        for method, path in (("GET", "/results"), ("POST", "/analyze")):
            assert api.get(path, method=method, **{k.replace("-", "_"): v for k, v in headers.items()}).status == 401
        assert api.cycles.requested == []


def request_from(peer: str, *, host: str = "localhost:8080") -> Request:
    return Request({"type": "http", "method": "GET", "client": (peer, 1), "headers": [(b"host", host.encode())]})


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", False),
        ("127.0.0.6", False),  # the proxy of a service mesh
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.8", False),
        ("::ffff:10.0.0.8", False),
        ("fe80::1%eth0", False),
        ("localhost", False),
        ("", False),
    ],
)
def test_the_address_of_the_peer_decides_whether_a_request_is_local(peer: str, expected: bool):
    assert is_local(request_from(peer)) is expected


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:80", "[::1]:8080"])
def test_requests_for_a_local_host_name_are_local(host: str):
    assert is_local(request_from("127.0.0.1", host=host))


@pytest.mark.parametrize("host", ["", "evil.example", "localhost.evil.example", "[::1", "[v1.x]"])
def test_requests_for_another_host_name_are_not_local(host: str):
    assert not is_local(request_from("127.0.0.1", host=host))


def test_every_response_has_security_headers(closed: Api):
    for path in ("/results", "/health", "/docs", "/nowhere"):
        headers = closed.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "server" not in headers


def test_a_large_request_is_refused_before_anything_is_done(closed: Api):
    response = closed.get("/analyze", method="POST", token=ADMIN, Content_Length=str(10**9))
    assert (response.status, response.json["type"]) == (413, "urn:gpusteward:problem:too-large")
