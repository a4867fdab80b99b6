"""TLS, client certificates, passwords, headers and rate limits on real sockets."""

import base64
import http.client
import json
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

import bcrypt
import pytest
import trustme

from gpusteward.agent.http.connections import ClientConnection
from gpusteward.agent.http.server import Server
from gpusteward.http_server.web_config import WebConfigFile
from tests.agent.http.clients import Starter, fetch
from tests.waiting import wait_until

ALICE = "Basic " + base64.b64encode(b"alice:right").decode()
USERS = f"basic_auth_users:\n  alice: {bcrypt.hashpw(b'right', bcrypt.gensalt(4)).decode()}\n"
TLS = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.pem\n"
CLIENTS = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n"


@dataclass
class Authority:
    """A certificate authority and the folder its files are in."""

    folder: Path
    authority: trustme.CA

    def certify_server(self) -> None:
        self.authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(self.folder / "server.pem")

    def trusting(self, *, client: str = "") -> ssl.SSLContext:
        """A client's context; with a name it shows a certificate for it."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if client:
            self.authority.issue_cert(client).configure_cert(context)
        return context

    def configure(self, text: str) -> WebConfigFile:
        path = self.folder / "web.yml"
        path.write_text(text)
        return WebConfigFile(path)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path, trustme.CA())
    made.certify_server()
    made.authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return made


def fetch_securely(server: Server, path: str, context: ssl.SSLContext) -> bytes:
    connection = http.client.HTTPSConnection("localhost", server.address.port, timeout=10, context=context)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()


def test_pages_are_served_over_tls(start: Starter, authority: Authority) -> None:
    server = start(web=authority.configure(TLS).current)
    assert server.url.startswith("https://")
    assert fetch_securely(server, "/metrics", authority.trusting()) == b"text\n"


def test_a_renewed_certificate_is_used_for_the_next_client(start: Starter, authority: Authority) -> None:
    server = start(web=authority.configure(TLS).current)
    fetch_securely(server, "/metrics", authority.trusting())
    authority.authority = trustme.CA()
    authority.certify_server()
    assert fetch_securely(server, "/metrics", authority.trusting()) == b"text\n"


def test_a_client_without_a_tls_handshake_blocks_no_other(start: Starter, authority: Authority) -> None:
    server = start(web=authority.configure(TLS).current, read_seconds=0.5)
    with socket.create_connection(server.address) as idle:
        wait_until(lambda: len(server.connections) == 1)
        assert fetch_securely(server, "/metrics", authority.trusting()) == b"text\n"
        idle.settimeout(10)
        assert idle.recv(1) == b""


def test_a_client_that_sends_plain_http_to_tls_is_dropped(start: Starter, authority: Authority) -> None:
    server = start(web=authority.configure(TLS).current)
    with pytest.raises((OSError, http.client.HTTPException)):
        fetch(server, "/metrics")
    assert fetch_securely(server, "/metrics", authority.trusting()) == b"text\n"


def test_a_client_certificate_is_required_if_configured(start: Starter, authority: Authority) -> None:
    server = start(web=authority.configure(TLS + CLIENTS).current)
    assert fetch_securely(server, "/metrics", authority.trusting(client="prometheus")) == b"text\n"
    for untrusted in (authority.trusting(), Authority(authority.folder, trustme.CA()).trusting(client="prometheus")):
        authority.authority.configure_trust(untrusted)
        with pytest.raises(OSError):  # noqa: PT011 - TLS may end in a reset as well as in an alert
            fetch_securely(server, "/metrics", untrusted)


def test_only_client_certificates_with_an_allowed_name_are_accepted(start: Starter, authority: Authority) -> None:
    server = start(web=authority.configure(TLS + CLIENTS + "  client_allowed_sans: [prometheus]\n").current)
    assert fetch_securely(server, "/metrics", authority.trusting(client="prometheus")) == b"text\n"
    with pytest.raises((OSError, http.client.HTTPException)):
        fetch_securely(server, "/metrics", authority.trusting(client="grafana"))


def test_every_page_requires_the_password(start: Starter, authority: Authority) -> None:
    server = start(web=authority.configure(USERS).current)
    for path in ("/metrics", "/snapshot", "/"):
        response, body = fetch(server, path)
        assert response.status == 401
        assert response.headers["WWW-Authenticate"].startswith("Basic")
        assert json.loads(body)["error"]["code"] == "unauthorized"
        assert fetch(server, path, Authorization=ALICE)[0].status == 200
    assert fetch(server, "/nothing")[0].status == 401
    assert fetch(server, "/nothing", Authorization=ALICE)[0].status == 404


def test_unauthenticated_clients_do_not_use_the_scrape_limit(start: Starter, authority: Authority) -> None:
    server = start(web=authority.configure(USERS).current, max_concurrent_scrapes=1)
    with socket.socket() as other:
        scraper = ClientConnection(other, "127.0.0.1")
        scraper.waiting_since = None  # it is being served
        assert server.context.scrapes.acquire(scraper)
        assert fetch(server, "/metrics")[0].status == 401
        assert fetch(server, "/metrics", Authorization=ALICE)[0].status == 503


def test_probes_need_no_password(start: Starter, authority: Authority) -> None:
    server = start(web=authority.configure(USERS).current)
    for path in ("/healthz", "/readyz", "/health"):
        assert fetch(server, path)[0].status == 200


def fetch_from_afar(server: Server, path: str, client_address: str = "10.1.2.3") -> bytes:
    """The response to a client of another machine: a real connection with a replaced address."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        server.admit(ClientConnection(listener.accept()[0], client_address))
        client.settimeout(10)
        client.sendall(f"GET {path} HTTP/1.0\r\nAuthorization: {ALICE}\r\n\r\n".encode())
        return b"".join(iter(lambda: client.recv(65536), b""))


def test_remote_clients_get_the_snapshot_only_with_a_password_or_expose_snapshot(
    start: Starter, authority: Authority
) -> None:
    for address in ("10.1.2.3", "::ffff:10.1.2.3", "127.0.0.6"):  # the last is the address of a service mesh proxy
        refused = fetch_from_afar(start(), "/snapshot", address)
        assert refused.startswith(b"HTTP/1.1 403")
        assert b"--expose-snapshot" in refused
    assert fetch_from_afar(start(), "/metrics").startswith(b"HTTP/1.1 200")
    assert fetch_from_afar(start(expose_snapshot=True), "/snapshot").startswith(b"HTTP/1.1 200")
    assert fetch_from_afar(start(web=authority.configure(USERS).current), "/snapshot").startswith(b"HTTP/1.1 200")


def test_headers_of_the_file_are_in_every_response(start: Starter, authority: Authority) -> None:
    web = authority.configure("http_server_config:\n  headers:\n    X-Frame-Options: deny\n")
    for path in ("/metrics", "/nothing"):
        assert fetch(start(web=web.current), path)[0].headers["X-Frame-Options"] == "deny"


def test_requests_over_the_rate_limit_get_429_and_probes_do_not(start: Starter, authority: Authority) -> None:
    server = start(web=authority.configure("rate_limit: {interval: 1h, burst: 1}\n").current)
    assert fetch(server, "/metrics")[0].status == 200
    assert fetch(server, "/metrics")[0].status == 429
    assert fetch(server, "/healthz")[0].status == 200


@pytest.mark.parametrize(
    "header",
    [
        {"Host": "rebound.example:9400"},
        {"Origin": "https://evil.example"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Via": "1.1 proxy"},
        {"X_Envoy_External_Address": "10.1.2.3"},
    ],
)
def test_a_web_page_or_a_proxy_cannot_read_the_snapshot_through_a_local_client(
    start: Starter, header: dict[str, str]
) -> None:
    server = start()
    assert fetch(server, "/snapshot")[0].status == 200
    refused, content = fetch(server, "/snapshot", **header)
    assert refused.status == 403
    assert b'"node"' not in content
