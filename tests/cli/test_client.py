"""The client on real sockets: what it says when things go wrong is what a person reads."""

import gc
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gpusteward.analyzer.settings.settings import ServerSettings, Settings
from gpusteward.cli.api.client import LostError, Peer, RefusedError, make_client
from gpusteward.cli.main import main
from gpusteward.core.errors import ConfigurationError
from tests.agent.test_agent_process import free_port
from tests.analyzer.api_tables import small_result
from tests.analyzer.serving import Api, serving_api


@contextmanager
def saying(answer: bytes, *, stays: bool = False) -> Iterator[str]:
    """A server that says the same to everybody, whatever they ask; one that stays hangs up after its client."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                connection.sendall(answer)
                with suppress(ConnectionResetError):
                    connection.recv(65536) if stays else None

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def answer(status: str, body: bytes, *headers: str) -> bytes:
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers])
    return head.encode() + b"\r\n\r\n" + body


@pytest.mark.parametrize(
    ("command", "way"), [("idle", "start one with `gpusteward serve`"), ("ps", "start one with `gpusteward agent`")]
)
def test_nobody_there_is_told_with_the_way_to_start_one(
    command: str, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flag = "--agent" if command == "ps" else "--server"
    assert main([command, flag, f"http://127.0.0.1:{free_port()}"]) == 1
    said = capsys.readouterr().err
    assert "Connection refused" in said
    assert way in said
    assert said.count("\n") == 1


def test_a_server_that_says_nothing_is_left_after_the_timeout(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert main(["idle", "--server", url, "--timeout", "0.2"]) == 1
    assert f"no answer from the analyzer at {url} within 0.2 s" in capsys.readouterr().err


@pytest.fixture
def guarded() -> Iterator[Api]:
    """An analyzer that wants a token for everything."""
    server = ServerSettings(anonymous_reads="never", tokens="viewer: right-token-of-a-viewer")
    with serving_api(small_result(), settings=Settings(server=server)) as api:
        yield api


def test_without_a_token_it_is_told_where_one_goes(guarded: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["idle", "--server", guarded.url]) == 1
    assert "wants a bearer token: put it into GPUSTEWARD_TOKEN" in capsys.readouterr().err


def test_a_wrong_token_is_told_by_its_origin_and_never_repeated(
    guarded: Api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUSTEWARD_TOKEN", "wrong-secret")
    assert main(["idle", "--server", guarded.url]) == 1
    said = capsys.readouterr().err
    assert "does not know the token from GPUSTEWARD_TOKEN" in said
    assert "wrong-secret" not in said


def test_the_token_of_a_file_opens_the_door(guarded: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    assert "does not hold a token" in capsys.readouterr().err


def test_something_that_is_no_analyzer_is_told_as_such() -> None:
    with saying(answer("200 OK", b"<html>hello</html>")) as url:
        client = make_client(Peer.ANALYZER, url)
        with pytest.raises(LostError, match="does not answer as an analyzer of gpusteward does"):
            client.read("/api/v1/health")


def test_redirects_are_not_followed_so_that_a_token_stays_where_it_was_sent() -> None:
    with saying(answer("302 Found", b"", "Location: http://127.0.0.1:1/")) as url:
        client = make_client(Peer.ANALYZER, url, token="secret")
        with pytest.raises(RefusedError, match="says 302"):
            client.read("/api/v1/health")


def test_words_of_a_server_cannot_move_the_cursor() -> None:
    body = b'{"detail": "\\u001b[2Jgone \\u202e"}'
    with saying(answer("503 Service Unavailable", body)) as url, pytest.raises(RefusedError) as caught:
        make_client(Peer.ANALYZER, url).read("/x")
    assert "\x1b" not in str(caught.value)
    assert "�[2Jgone �" in str(caught.value)


@pytest.mark.parametrize("body", [b"[" * 100_000, b"\xff\xfe", b""])
def test_broken_json_is_told_and_not_fatal(body: bytes) -> None:
    with saying(answer("200 OK", body)) as url, pytest.raises(LostError):
        make_client(Peer.ANALYZER, url).read("/x")


def test_an_answer_that_breaks_off_leaves_no_socket_open() -> None:
    begun = answer("200 OK", b"x" * 100)[:-50]
    gc.collect()
    with saying(begun, stays=True) as url, pytest.raises(LostError, match="no answer from the analyzer") as lost:
        make_client(Peer.ANALYZER, url, timeout_seconds=0.2).read("/x")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        lost.value.__notes__ = [lost]  # in a ring, as an error is that somebody keeps with its frames
        del lost
        gc.collect()
    assert [str(each.message) for each in told if each.category is ResourceWarning] == []


def test_what_did_not_change_is_not_sent_twice(analyzer: Api) -> None:
    client = make_client(Peer.ANALYZER, analyzer.url)
    first = client.read("/api/v1/workloads", [("limit", "2")])
    known = next(iter(client._known.values()))
    assert client.ask("/api/v1/workloads?limit=2", headers={"If-None-Match": known[0]}).status == 304
    assert client.read("/api/v1/workloads", [("limit", "2")]) == first


@pytest.mark.parametrize("url", ["ftp://host", "http://", "http://host:port", "http://host?x=1", "http://[::1"])
def test_an_address_that_is_none_is_a_mistake_of_the_person(url: str) -> None:
    with pytest.raises(ConfigurationError, match="write http://HOST:PORT"):
        make_client(Peer.ANALYZER, url)


def test_a_password_in_an_address_is_sent_and_never_shown() -> None:
    client = make_client(Peer.AGENT, "http://alice:s%20ecret@127.0.0.1:9400")
    assert client.url == "http://127.0.0.1:9400"
    assert client.authorization == "Basic YWxpY2U6cyBlY3JldA=="
    assert "ecret" not in repr(client)


def test_an_address_without_a_scheme_is_http() -> None:
    assert make_client(Peer.AGENT, "node-1:9400").url == "http://node-1:9400"


def test_before_the_first_cycle_the_analyzers_own_words_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with serving_api(None) as api:
        assert main(["idle", "--server", api.url]) == 1
    assert "no cycle has finished yet" in capsys.readouterr().err
