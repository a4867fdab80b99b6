"""The client of the API server, on responses that a real one does not give: other servers, proxies, cut connections."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trustme

from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.kubernetes import api as client_module
from gpusteward.kubernetes.api import ApiServer, GoneError, NotFoundError, ObjectError
from tests.fakes.apiserver import FakeApiServer, pod
from tests.waiting import wait_until

PODS = "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-a"
WATCH = f"{PODS}&watch=true&resourceVersion=0"
TOKEN = "eyJhbGciOi.secret-token"


class Listing(msgspec.Struct):
    items: list[msgspec.Raw]


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with FakeApiServer() as fake:
        yield fake


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def account(tmp_path: Path, authority: trustme.CA) -> Path:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    return tmp_path


def test_the_token_never_travels_unencrypted(server: FakeApiServer, account: Path) -> None:
    ApiServer(server.url, token_path=account / "token").read_json(PODS, Listing)
    assert "Authorization" not in server.headers[-1]


@pytest.mark.parametrize("content", [b"", b"two words", b"line\nbreak", b"\xff\xfe", b"nul\0"])
def test_a_file_that_holds_no_token_is_refused_without_being_quoted(account: Path, content: bytes) -> None:
    (account / "token").write_bytes(content)
    with pytest.raises(SourceError, match="token") as caught:
        ApiServer.from_cluster({"KUBERNETES_SERVICE_HOST": "127.0.0.1"}, account=account).read_json(PODS, Listing)
    assert not content or content.decode("latin-1") not in str(caught.value)


def test_410_has_its_own_error(server: FakeApiServer) -> None:
    server.gone_next_watch = True
    with pytest.raises(GoneError, match="410"):
        ApiServer(server.url).watch(WATCH, idle_timeout_seconds=5)


WEB = "/apis/apps/v1/namespaces/team/deployments/web%3A1"
ABSENT = {"reason": "NotFound", "details": {"name": "web:1", "group": "apps", "kind": "deployments"}}


def test_a_404_that_names_the_object_says_that_it_does_not_exist(server: FakeApiServer) -> None:
    server.not_found = msgspec.json.encode({"kind": "Status", "message": "not found", **ABSENT})
    with pytest.raises(NotFoundError) as caught:
        ApiServer(server.url).read_json(WEB, dict)
    assert caught.value.http_status == 404


@pytest.mark.parametrize(
    "body",
    [
        b"404 page not found\n",  # a path that is not served: the version of a CRD that was dropped
        {"reason": "NotFound", "details": {}, "message": "the server could not find the requested resource"},
        {"reason": "NotFound"},
        {**ABSENT, "reason": "ServiceUnavailable"},
        {**ABSENT, "details": {"name": "other", "kind": "deployments"}},
        {**ABSENT, "details": {"name": "web:1", "kind": "namespaces"}},
        {**ABSENT, "details": {"name": "web:1"}},
        {**ABSENT, "details": ["web:1"]},
        b"<html>not found</html>",
        b"",
    ],
    ids=str,
)
def test_never_takes_a_404_that_does_not_name_the_object_for_a_deleted_one(
    server: FakeApiServer, body: bytes | dict[str, Any]
) -> None:
    server.not_found = body if isinstance(body, bytes) else msgspec.json.encode({"kind": "Status", **body})
    with pytest.raises(ObjectError, match="404") as caught:
        ApiServer(server.url).read_json(WEB, dict)
    assert not isinstance(caught.value, NotFoundError)
    assert caught.value.http_status == 404


def test_a_404_of_a_list_names_no_object(server: FakeApiServer) -> None:
    server.not_found = msgspec.json.encode({"kind": "Status", **ABSENT})
    with pytest.raises(ObjectError, match="404") as caught:
        ApiServer(server.url).read_json("/apis/apps/v1/namespaces/team/deployments", dict)
    assert not isinstance(caught.value, NotFoundError)


def test_redirects_are_never_followed(server: FakeApiServer) -> None:
    server.redirects = True
    with pytest.raises(SourceError, match=r"redirect \(302\)"):
        ApiServer(server.url).read_json(PODS, Listing)
    assert len(server.requests) == 1


def test_a_refused_connection_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(SourceError, match=f"http://127.0.0.1:{port}.*: connection failed: connection refused"):
        ApiServer(f"http://127.0.0.1:{port}").read_json(PODS, Listing)


def test_a_server_that_does_not_respond_is_given_up_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        api = ApiServer(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_seconds=0.05)
        with pytest.raises(SourceError, match=r"no complete response within 0\.05 s"):
            api.read_json(PODS, Listing)


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"items": 5}', b'{"items": ["\xff"]}', b"null"])
def test_a_response_that_is_not_what_was_requested_is_a_source_error(server: FakeApiServer, body: bytes) -> None:
    server.raw_list = body
    with pytest.raises(SourceError, match="not that of an API server"):
        ApiServer(server.url).read_json(PODS, list[str])


def test_a_response_without_end_is_not_read_to_its_end(server: FakeApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "RESPONSE_LIMIT_BYTES", 1 << 20)
    server.raw_list = b" " * (1 << 21)
    with pytest.raises(SourceError, match="larger than 1048576 bytes"):
        ApiServer(server.url).read_json(PODS, Listing)


def test_a_watch_yields_whole_lines_and_drops_one_that_is_cut(server: FakeApiServer) -> None:
    server.add_pod(pod("trainer"))
    with ApiServer(server.url).watch(WATCH, idle_timeout_seconds=5) as stream:
        lines = iter(stream)
        assert b"trainer" in next(lines)
        server.close_watches(mid_line=True)
        with pytest.raises(SourceError, match="the watch ended"):
            next(lines)


def test_a_line_without_end_is_not_read_to_its_end(server: FakeApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "LINE_LIMIT_BYTES", 1 << 20)
    with ApiServer(server.url).watch(WATCH, idle_timeout_seconds=5) as stream:
        wait_until(lambda: server.open_watches == 1)
        server.send_raw(b"x" * (1 << 21))
        with pytest.raises(SourceError, match="a line of the response is longer than 1048576 bytes"):
            next(iter(stream))


def test_a_watch_without_data_ends_after_its_idle_timeout(server: FakeApiServer) -> None:
    with (
        ApiServer(server.url).watch(WATCH, idle_timeout_seconds=0.05) as stream,
        pytest.raises(SourceError, match=r"no data for 0\.05 s"),
    ):
        next(iter(stream))


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8001", "ftp://x", "http://", "http://x:port", "http://u:p@x", "http://x/?a=b"]
)
def test_a_url_with_credentials_or_query_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigurationError, match="write http://host:port"):
        ApiServer(url)


def test_outside_of_a_cluster_the_reason_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="KUBERNETES_SERVICE_HOST is not set"):
        ApiServer.from_cluster({})
    with pytest.raises(SourceError, match="automountServiceAccountToken"):
        ApiServer.from_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, account=tmp_path)


def test_an_ipv6_cluster_address_is_understood(account: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    assert ApiServer.from_cluster(environ, account=account).url == "https://[fd00::1]:6443"
