"""The analyzer with the agent's web config file: TLS, client certificates, passwords, and changes of them."""

import base64
import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import bcrypt
import pytest
import trustme

from gpusteward.analyzer.server.http_server import ConnectionLimits
from gpusteward.analyzer.settings.settings import ServerSettings, Settings
from gpusteward.cli.main import main
from gpusteward.http_server.web_config import WebConfigFile
from tests.analyzer.api.sample_results import small_result
from tests.analyzer.api.server import Api, Response, running_api

TOKENS = Settings(
    server=ServerSettings(tokens="viewer: viewer0123456789, operator: operator0123456789", anonymous_reads="never")
)
USERS = f"basic_auth_users:\n  alice: {bcrypt.hashpw(b'secret', bcrypt.gensalt(4)).decode()}\n"
TLS = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"
CLIENT_CA = "  client_ca_file: ca.crt\n  client_auth_type: RequireAndVerifyClientCert\n"
SHORT = ConnectionLimits(read_seconds=0.3, sweep_seconds=0.05)


class Site:
    """A folder with a CA, a certificate of the server, and the web config file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.authority = folder, trustme.CA()
        self.ca_file = folder / "ca.crt"
        self.authority.cert_pem.write_to_path(self.ca_file)
        self.issue()

    def issue(self) -> None:
        certificate = self.authority.issue_cert("127.0.0.1", "localhost")
        certificate.private_key_pem.write_to_path(self.folder / "server.key")
        certificate.cert_chain_pems[0].write_to_path(self.folder / "server.crt")

    def configure(self, text: str) -> WebConfigFile:
        path = self.folder / "web.yml"
        path.write_text(text)
        return WebConfigFile(path)

    def trust(self, client: trustme.LeafCert | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca_file)
        if client is not None:
            client.configure_cert(context)
        return context


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@contextmanager
def serving(web: WebConfigFile, settings: Settings | None = None) -> Iterator[Api]:
    with running_api(small_result(), web=web.current, settings=settings, limits=SHORT) as api:
        yield api


def fetch(api: Api, path: str, context: ssl.SSLContext | None = None, **headers: str) -> Response:
    request = urllib.request.Request(api.url + path, headers={n.replace("_", "-"): v for n, v in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as response:
            return Response(response.status, response.headers, response.read())
    except urllib.error.HTTPError as error:
        with error:
            return Response(error.code, error.headers, error.read())


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_the_analyzer_serves_https_and_the_command_line_reads_it(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    with serving(site.configure(TLS)) as api:
        assert api.url.startswith("https://")
        assert fetch(api, "/results", site.trust()).status == 200
        assert main(["idle", "--server", api.url, "--ca-file", str(site.ca_file), "-o", "json"]) in (0, 3)
        assert json.loads(capsys.readouterr().out)
        monkeypatch.setenv("GPUSTEWARD_CA_FILE", str(site.ca_file))
        assert main(["idle", "--server", api.url]) in (0, 3)
        monkeypatch.delenv("GPUSTEWARD_CA_FILE")
        assert main(["idle", "--server", api.url]) == 1
        assert "certificate" in capsys.readouterr().err


def test_a_new_certificate_is_used_from_the_next_connection_on(site: Site):
    def read_serial() -> str:
        host, port = api.url.removeprefix("https://").split(":")
        plain = socket.create_connection((host, int(port)), timeout=10)
        with site.trust().wrap_socket(plain, server_hostname=host) as secure:
            return str((secure.getpeercert() or {})["serialNumber"])

    with serving(site.configure(TLS)) as api:
        before = read_serial()
        site.issue()
        assert read_serial() != before


def test_a_handshake_that_is_not_finished_is_closed_and_delays_nobody(site: Site):
    with serving(site.configure(TLS)) as api:
        host, port = api.url.removeprefix("https://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as silent:
            assert fetch(api, "/livez", site.trust()).status == 200
            assert silent.recv(1) == b""
        with socket.create_connection((host, int(port)), timeout=10) as plain:
            plain.sendall(b"GET /results HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert not plain.recv(65536).startswith(b"HTTP")
        assert fetch(api, "/livez", site.trust()).status == 200


def test_a_client_certificate_is_required_and_makes_its_client_a_viewer(site: Site):
    known, stranger = site.authority.issue_cert("prometheus"), trustme.CA().issue_cert("prometheus")
    with serving(site.configure(TLS + CLIENT_CA), settings=TOKENS) as api:
        assert fetch(api, "/results", site.trust(known)).status == 200
        assert fetch(api, "/analyze", site.trust(known)).status == 403
        assert fetch(api, "/analyze", site.trust(known), Authorization="Bearer operator0123456789").status == 200
        for context in (site.trust(), site.trust(stranger)):
            with pytest.raises(OSError, match=r"(?i)alert|reset|closed|EOF"):
                fetch(api, "/results", context)


def test_only_client_certificates_with_an_allowed_name_are_accepted(site: Site):
    allowed, other = site.authority.issue_cert("prometheus"), site.authority.issue_cert("somebody")
    with serving(site.configure(TLS + CLIENT_CA + "  client_allowed_sans: [prometheus]\n")) as api:
        assert fetch(api, "/results", site.trust(allowed)).status == 200
        with pytest.raises(OSError, match=r"(?i)reset|closed|EOF"):
            fetch(api, "/results", site.trust(other))


def test_a_password_makes_its_user_a_viewer_and_a_token_is_accepted_instead(site: Site):
    with serving(site.configure(USERS), settings=TOKENS) as api:
        for _ in range(2):  # computed, then recalled
            assert fetch(api, "/results", Authorization=basic("alice", "secret")).status == 200
        assert fetch(api, "/analyze", Authorization=basic("alice", "secret")).status == 403
        assert fetch(api, "/results", Authorization="Bearer viewer0123456789").status == 200
        assert fetch(api, "/analyze", Authorization="Bearer operator0123456789").status == 200
        for wrong in (basic("alice", "Secret"), basic("bob", "secret"), "Basic !", "Bearer unknown0123456789"):
            assert fetch(api, "/results", Authorization=wrong).status == 401
        refused = fetch(api, "/results")
        assert (refused.status, refused.headers["WWW-Authenticate"].split()[0]) == (401, "Basic")
        assert "basic_auth_users" in refused.json["detail"]


def test_with_passwords_local_clients_need_one_too_and_probes_do_not(site: Site):
    with serving(site.configure(USERS)) as api:
        assert fetch(api, "/results").status == 401
        assert fetch(api, "/analyze", Authorization=basic("alice", "secret")).status == 200  # local, and no tokens
        assert [fetch(api, path).status for path in ("/livez", "/healthz", "/readyz", "/health")] == [200] * 4


def test_users_can_be_changed_while_it_runs(site: Site):
    web = site.configure("")
    with serving(web) as api:
        assert fetch(api, "/results").status == 200
        (site.folder / "web.yml").write_text(USERS)
        assert fetch(api, "/results").status == 401
        (site.folder / "web.yml").write_text("basic_auth_users: {alice: plain}\n")  # refused: the users stay
        assert fetch(api, "/results").status == 401
        assert fetch(api, "/results", Authorization=basic("alice", "secret")).status == 200


def test_headers_and_rate_limit_of_the_file_apply(site: Site):
    text = "rate_limit: {interval: 1h, burst: 1}\nhttp_server_config: {headers: {X-Frame-Options: sameorigin}}\n"
    with serving(site.configure(text)) as api:
        first, second = fetch(api, "/results"), fetch(api, "/results")
        assert (first.status, second.status) == (200, 429)
        assert {first.headers["X-Frame-Options"], second.headers["X-Frame-Options"]} == {"sameorigin"}
        assert fetch(api, "/livez").status == 200
