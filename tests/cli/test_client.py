"""The HTTP client on real sockets, and the error texts that users read."""

import gc
import itertools
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gpusteward.analyzer.settings.settings import ServerSettings, Settings
from gpusteward.cli.api.client import Peer, StatusError, UnreachableError, explain_status, make_client
from gpusteward.cli.main import main
from gpusteward.core.errors import ConfigurationError
from tests.agent.test_agent_process import free_port
from tests.analyzer.api.sample_results import small_result
from tests.analyzer.api.server import Api, running_api
from tests.garbage import keeping_garbage


@contextmanager
def responding(*responses: bytes, waits_for_client: bool = False) -> Iterator[str]:
    """A server that sends these responses to one connection after another, the last one to all others too.

    `waits_for_client`: the client closes the connection first.
    """
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for number in itertools.count():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                connection.sendall(responses[min(number, len(responses) - 1)])
                with suppress(ConnectionResetError):
                    connection.recv(65536) if waits_for_client else None

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def make_response(status: str, body: bytes, *headers: str) -> bytes:
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers])
    return head.encode() + b"\r\n\r\n" + body


@pytest.mark.parametrize(
    ("command", "way"), [("idle", "start one with `gpusteward serve`"), ("ps", "start one with `gpusteward agent`")]
)
def test_a_refused_connection_is_reported_with_a_hint_how_to_start_the_server(
    command: str, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flag = "--agent" if command == "ps" else "--server"
    assert main([command, flag, f"http://127.0.0.1:{free_port()}"]) == 1
    printed = capsys.readouterr().err
    assert "connection refused" in printed
    assert way in printed
    assert printed.count("\n") == 1


def test_a_server_that_does_not_respond_is_reported_after_the_timeout(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert main(["idle", "--server", url, "--timeout", "0.2"]) == 1
    assert f"no response from the analyzer at {url}: no complete response within 0.2 s" in capsys.readouterr().err


@pytest.fixture
def guarded() -> Iterator[Api]:
    """An analyzer that requires a token for every request."""
    server = ServerSettings(anonymous_reads="never", tokens="viewer: right-token-of-a-viewer")
    with running_api(small_result(), settings=Settings(server=server)) as api:
        yield api


def test_a_missing_token_is_reported_with_a_hint(guarded: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["idle", "--server", guarded.url]) == 1
    assert "requires a bearer token: set GPUSTEWARD_TOKEN or --token-file" in capsys.readouterr().err


def test_a_rejected_token_is_reported_by_its_origin_and_never_printed(
    guarded: Api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUSTEWARD_TOKEN", "wrong-secret")
    assert main(["idle", "--server", guarded.url]) == 1
    printed = capsys.readouterr().err
    assert "rejected the token from GPUSTEWARD_TOKEN" in printed
    assert "wrong-secret" not in printed


def test_a_token_from_a_file_is_accepted(guarded: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "token"
    file.write_text("right-token-of-a-viewer\n")
    assert main(["idle", "--server", guarded.url, "--token-file", str(file)]) == 0
    assert "Deployment/server" in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"two words", b"", "密".encode(), b"line\nother"])
def test_a_file_without_a_token_is_refused_before_anything_is_sent(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    assert main(["idle", "--token-file", str(file)]) == 2
    assert "does not contain a token" in capsys.readouterr().err


def test_a_server_that_is_not_an_analyzer_is_reported() -> None:
    with responding(make_response("200 OK", b"<html>hello</html>")) as url:
        client = make_client(Peer.ANALYZER, url)
        with pytest.raises(UnreachableError, match="is not valid JSON; check that this is the address of the analyzer"):
            client.read("/api/v1/health")


def test_redirects_are_not_followed_so_that_a_token_is_sent_to_one_address_only() -> None:
    with responding(make_response("302 Found", b"", "Location: http://127.0.0.1:1/")) as url:
        client = make_client(Peer.ANALYZER, url, token="secret")
        with pytest.raises(StatusError, match="responded 302"):
            client.read("/api/v1/health")


def test_error_texts_of_a_server_cannot_move_the_cursor() -> None:
    body = b'{"detail": "\\u001b[2Jgone \\u202e"}'
    with responding(make_response("503 Service Unavailable", body)) as url, pytest.raises(StatusError) as caught:
        make_client(Peer.ANALYZER, url).read("/x")
    assert "\x1b" not in str(caught.value)
    assert "�[2Jgone �" in str(caught.value)


@pytest.mark.parametrize("body", [b"[" * 100_000, b"\xff\xfe", b""])
def test_invalid_json_is_reported(body: bytes) -> None:
    with responding(make_response("200 OK", body)) as url, pytest.raises(UnreachableError):
        make_client(Peer.ANALYZER, url).read("/x")


@pytest.mark.parametrize("status", [401, 403])
def test_a_prometheus_that_rejects_the_credentials_is_reported_with_the_settings_to_check(status: int) -> None:
    error = explain_status(Peer.PROMETHEUS, "http://mimir", status, b"no org id")
    for text in (str(error), error.as_message().zh):
        assert all(word in text for word in ("bearer_token", "headers", "X-Scope-OrgID", str(status)))


def test_an_incomplete_response_leaves_no_socket_open() -> None:
    begun = make_response("200 OK", b"x" * 100)[:-50]
    with keeping_garbage(), warnings.catch_warnings(record=True) as caught:
        with (
            responding(begun, waits_for_client=True) as url,
            pytest.raises(UnreachableError, match="no response from the analyzer") as lost,
        ):
            make_client(Peer.ANALYZER, url, timeout_seconds=0.2).read("/x")
        warnings.simplefilter("always")
        lost.value.__notes__ = [lost]  # a reference cycle, as an error kept with its frames is
        del lost
        gc.collect(0)
    assert [str(each.message) for each in caught if each.category is ResourceWarning] == []


def test_an_unchanged_document_is_not_transferred_again() -> None:
    with responding(make_response("200 OK", b'{"a": 1}', 'ETag: "x"'), make_response("304 Not Modified", b"")) as url:
        client = make_client(Peer.ANALYZER, url)
        assert client.read("/x") == client.read("/x") == {"a": 1}


def test_the_analyzer_responds_304_to_a_known_etag(analyzer: Api) -> None:
    client = make_client(Peer.ANALYZER, analyzer.url)
    etag = client.request("/api/v1/workloads?limit=2").headers["etag"]
    assert client.request("/api/v1/workloads?limit=2", headers={"If-None-Match": etag}).status == 304


@pytest.mark.parametrize("url", ["ftp://host", "http://", "http://host:port", "http://host?x=1", "http://[::1"])
def test_an_invalid_address_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigurationError, match="write http://HOST:PORT"):
        make_client(Peer.ANALYZER, url)


def test_a_password_in_an_address_is_sent_and_never_shown() -> None:
    client = make_client(Peer.AGENT, "http://alice:s%20ecret@127.0.0.1:9400")
    assert client.url == "http://127.0.0.1:9400"
    assert client.authorization == "Basic YWxpY2U6cyBlY3JldA=="
    assert "ecret" not in repr(client)


def test_an_address_without_a_scheme_is_http() -> None:
    assert make_client(Peer.AGENT, "node-1:9400").url == "http://node-1:9400"


def test_the_error_detail_of_the_analyzer_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with running_api(None) as api:
        assert main(["idle", "--server", api.url]) == 1
    assert "no cycle has finished yet" in capsys.readouterr().err
