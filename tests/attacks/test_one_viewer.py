"""A viewer who takes what there is of event streams and sessions: the others keep theirs."""

import json
import socket
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from gpusteward.analyzer.api.http.concurrency_limits import EVENTS_PATH, SHARES
from gpusteward.analyzer.api.http.identities import MOST_SESSIONS
from tests.attacks.victims import FREEZE_CPU_SECONDS, TOKENS, Victim, status_of

pytestmark = pytest.mark.slow


@contextmanager
def listening(victim: Victim, role: str, count: int) -> Iterator[list[int]]:
    """The status of each of these event streams, which stay open."""
    where = urllib.parse.urlsplit(victim.url)
    head = f"GET {EVENTS_PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKENS[role]}\r\n\r\n"
    with ExitStack() as stack:
        clients = [
            stack.enter_context(socket.create_connection((where.hostname, where.port), timeout=30))
            for _ in range(count)
        ]
        for client in clients:
            client.sendall(head.encode())
        yield [status_of(client.recv(4096)) for client in clients]


def sign_in(victim: Victim, role: str) -> str:
    """The cookie of a new session."""
    body = json.dumps({"token": TOKENS[role]}).encode()
    response = victim.post("/api/v1/session", body, "Content-Type: application/json")
    assert status_of(response) == 200, response
    (cookie,) = [line for line in response.split(b"\r\n") if line.lower().startswith(b"set-cookie:")]
    return cookie.decode().partition(":")[2].strip().partition(";")[0]


def read_role(victim: Victim, cookie: str) -> str:
    return str(json.loads(victim.get("/api/v1/session", f"Cookie: {cookie}").partition(b"\r\n\r\n")[2])["role"])


def test_one_viewer_does_not_take_all_event_streams(guarded: Victim):
    share = SHARES[EVENTS_PATH]
    with guarded.attacked(cpu_seconds=5), listening(guarded, "viewer", share.of_all) as found:
        assert found.count(200) == share.of_one_client
        assert found.count(503) == share.of_all - share.of_one_client
        with listening(guarded, "admin", 2) as others:
            assert others == [200, 200]
        assert guarded.time("/livez").cpu_seconds < FREEZE_CPU_SECONDS


def test_a_thousand_sign_ins_of_a_viewer_end_no_session_of_an_admin(guarded: Victim):
    admin = sign_in(guarded, "admin")
    first = sign_in(guarded, "viewer")
    with guarded.attacked(cpu_seconds=10):
        for _ in range(MOST_SESSIONS + 1):
            last = sign_in(guarded, "viewer")
    assert read_role(guarded, admin) == "admin"
    assert read_role(guarded, last) == "viewer"
    assert read_role(guarded, first) == "None", "the viewer's own was ended"
