"""The web config file of the exporter-toolkit: what is read, what is refused, what is read again."""

import base64
import ssl
import threading
from pathlib import Path

import bcrypt
import pytest
import trustme

from gpusteward.core.errors import ConfigurationError
from gpusteward.http_server.access import (
    REMEMBERED_FAILURES,
    BasicAuthentication,
    TokenBucket,
    parse_basic,
    verify_bcrypt,
)
from gpusteward.http_server.web_config import WebConfig, WebConfigFile, read_web_config


def hash_password(password: str) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def write(folder: Path, text: str) -> Path:
    path = folder / "web.yml"
    path.write_text(text)
    return path


@pytest.fixture
def certified(tmp_path: Path) -> Path:
    """A folder with server.crt, server.key and ca.crt."""
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    certificate.private_key_pem.write_to_path(tmp_path / "server.key")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "server.crt")
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    return tmp_path


TLS = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"


def test_an_empty_file_means_plain_http_without_authentication(tmp_path: Path) -> None:
    assert read_web_config(write(tmp_path, "")) == WebConfig()


def test_paths_are_relative_to_the_file(certified: Path) -> None:
    config = read_web_config(write(certified, TLS))
    assert config.context is not None
    assert config.tls is not None
    assert config.tls.files == (certified / "server.crt", certified / "server.key")
    assert config.context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert not config.knows_its_clients


def test_certificate_and_key_can_be_inline(certified: Path) -> None:
    def indent(name: str) -> str:
        return "\n".join("    " + line for line in (certified / name).read_text().splitlines())

    text = f"tls_server_config:\n  cert: |\n{indent('server.crt')}\n  key: |\n{indent('server.key')}\n"
    text += f"  client_auth_type: RequireAndVerifyClientCert\n  client_ca: |\n{indent('ca.crt')}\n"
    config = read_web_config(write(certified, text))
    assert config.context is not None
    assert config.context.verify_mode is ssl.CERT_REQUIRED
    assert config.knows_its_clients


def test_tls_versions_ciphers_and_preferences_are_applied(certified: Path) -> None:
    more = (
        "  min_version: TLS12\n  max_version: TLS12\n  prefer_server_cipher_suites: false\n"
        "  cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256]\n"
        "  curve_preferences: [X25519]\n"
    )
    context = read_web_config(write(certified, TLS + more)).context
    assert context is not None
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2
    assert not context.options & ssl.OP_CIPHER_SERVER_PREFERENCE
    names = {cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] == "TLSv1.2"}
    assert names == {"ECDHE-RSA-AES128-GCM-SHA256"}


def test_headers_http2_and_the_rate_limit_are_read(tmp_path: Path) -> None:
    text = "http_server_config:\n  http2: false\n  headers:\n    X-Frame-Options: deny\n    X-XSS-Protection: ''\n"
    config = read_web_config(write(tmp_path, text + "rate_limit: {interval: 1s, burst: 20}\n"))
    assert config.headers == {"X-Frame-Options": "deny"}
    assert isinstance(config.bucket, TokenBucket)
    assert read_web_config(write(tmp_path, "rate_limit: {interval: 0, burst: 20}\n")).bucket is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tls_server_conf: {}", ["tls_server_conf", "did you mean 'tls_server_config'"]),
        ("- a", ["must be a mapping of keys and values"]),
        ("a: [", ["is not YAML"]),
        ("tls_server_config: {certfile: x}", ["tls_server_config.certfile", "did you mean 'cert_file'"]),
        ("tls_server_config: {cert_file: server.crt}", ["lacks a key_file"]),
        ("tls_server_config: {client_auth_type: NoClientCert}", ["lacks a cert_file"]),
        ("tls_server_config: {cert_file: gone.crt, key_file: server.key}", ["there is no file", "gone.crt"]),
        ("tls_server_config: {cert_file: server.crt, key_file: ca.crt}", ["cannot be used"]),
        ("tls_server_config: {cert_file: 7, key_file: server.key}", ["cert_file", "must be a string, not 7"]),
        (TLS + "  min_version: TLS10", ["min_version", "'TLS10' is not one of TLS12, TLS13"]),
        (TLS + "  client_auth_type: Require", ["client_auth_type", "RequireAndVerifyClientCert"]),
        (TLS + "  client_auth_type: RequireAnyClientCert", ["without verifying it"]),
        (TLS + "  client_auth_type: RequireAndVerifyClientCert", ["client_auth_type", "needs a client_ca_file"]),
        (TLS + "  client_auth_type: VerifyClientCertIfGiven", ["client_auth_type", "needs a client_ca_file"]),
        (TLS + "  client_ca_file: ca.crt", ["client_ca_file", "needs client_auth_type"]),
        (TLS + "  client_allowed_sans: [a]", ["client_allowed_sans", "needs client_auth_type"]),
        (TLS + "  cipher_suites: [RC4]", ["cipher_suites", "'RC4'"]),
        (TLS + "  cipher_suites: RC4", ["must be a list of strings"]),
        (TLS + "  prefer_server_cipher_suites: 3", ["must be true or false, not 3"]),
        ("basic_auth_users: {alice: secret}", ["basic_auth_users.alice", "bcrypt", "htpasswd"]),
        (f"basic_auth_users: {{alice: $2$04${'a' * 21}u{'a' * 31}}}", ["basic_auth_users.alice", "bcrypt"]),
        (f"basic_auth_users: {{alice: $2b$04${'a' * 22}{'a' * 31}}}", ["basic_auth_users.alice", "bcrypt"]),
        ("basic_auth_users: [alice]", ["basic_auth_users", "must be a mapping"]),
        ("http_server_config: {headers: {X-Frame-Options: maybe}}", ["X-Frame-Options", "deny, sameorigin"]),
        ("http_server_config: {headers: {Server: x}}", ["http_server_config.headers.Server", "unknown key"]),
        ('http_server_config: {headers: {X-XSS-Protection: "a\\r\\nb: c"}}', ["must be one line"]),
        ("rate_limit: {interval: 1s}", ["rate_limit.burst", "at least 1"]),
        ("rate_limit: {interval: often, burst: 1}", ["rate_limit.interval", "'often': write a duration"]),
    ],
)
def test_an_invalid_value_is_reported_with_file_and_key(text: str, words: list[str], certified: Path) -> None:
    path = write(certified, text)
    with pytest.raises(ConfigurationError) as caught:
        read_web_config(path)
    for word in (str(path), *words):
        assert word in str(caught.value)


def test_an_error_never_contains_a_hash(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_web_config(write(tmp_path, "basic_auth_users: {alice: $2y$10$nearlyahash}"))
    assert "nearlyahash" not in str(caught.value)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"gone\.yml cannot be read: no such file"):
        WebConfigFile(tmp_path / "gone.yml")


def test_a_changed_file_is_applied_and_an_invalid_change_is_not(tmp_path: Path) -> None:
    path = write(tmp_path, f"basic_auth_users: {{alice: {hash_password('one')}}}")
    file = WebConfigFile(path)
    before = file.current()
    assert file.current() is before
    path.write_text("basic_auth_users: {alice: plain text is not a hash at all}")
    assert file.current() is before
    path.write_text(f"basic_auth_users: {{bob: {hash_password('other')}}}  # a comment for another size")
    after = file.current().authentication
    assert after is not None
    assert after.check("bob", b"other")
    assert not after.check("alice", b"one")


def test_the_last_state_of_a_file_is_applied(tmp_path: Path) -> None:
    path = write(tmp_path, "")
    file = WebConfigFile(path)

    def write_often() -> None:
        for number in range(1, 101):
            path.write_text(f"http_server_config: {{headers: {{X-XSS-Protection: '{'x' * number}'}}}}")

    writer = threading.Thread(target=write_often)
    writer.start()
    while writer.is_alive():
        file.current()
    assert file.current().headers == {"X-XSS-Protection": "x" * 100}


def test_a_renewed_certificate_is_applied(certified: Path) -> None:
    file = WebConfigFile(write(certified, TLS))
    before = file.current().context
    renewed = trustme.CA().issue_cert("localhost")
    (certified / "server.crt").unlink()
    assert file.current().context is before
    renewed.private_key_pem.write_to_path(certified / "server.key")
    renewed.cert_chain_pems[0].write_to_path(certified / "server.crt")
    assert file.current().context is not before


def test_only_the_right_password_is_accepted() -> None:
    authentication = BasicAuthentication({"alice": hash_password("sécret"), "bob": hash_password("other")})
    assert authentication.allow(basic("alice", "sécret"))
    assert authentication.allow(basic("alice", "sécret"))
    for wrong in (basic("alice", "other"), basic("carol", "sécret"), basic("alice", ""), "Bearer x", "", "Basic !!"):
        assert not authentication.allow(wrong)
        assert not authentication.allow(wrong)


def test_a_hash_made_by_htpasswd_and_a_very_long_password_work() -> None:
    long = "x" * 100
    hashed = bcrypt.hashpw(long.encode()[:72], bcrypt.gensalt(4)).decode().replace("$2b$", "$2y$")
    assert BasicAuthentication({"alice": hashed}).check("alice", long.encode())


def test_only_the_last_wrong_passwords_are_remembered() -> None:
    computed: list[bytes] = []

    def verify(password: bytes, hashed: bytes) -> bool:
        computed.append(password)
        return verify_bcrypt(password, hashed)

    authentication = BasicAuthentication({"alice": hash_password("right")}, verify=verify)
    assert authentication.check("alice", b"right")
    for number in range(REMEMBERED_FAILURES + 50):
        assert not authentication.check("alice", str(number).encode())
    computed.clear()
    for number in range(50, REMEMBERED_FAILURES + 50):
        assert not authentication.check("alice", str(number).encode())
    assert computed == []
    assert not authentication.check("alice", b"49")
    assert computed == [b"49"]
    assert authentication.check("alice", b"right")


def test_a_known_client_does_not_wait_while_a_wrong_password_is_computed() -> None:
    started, release = threading.Event(), threading.Event()

    def verify(password: bytes, _hashed: bytes) -> bool:
        if password == b"guess":
            started.set()
            release.wait(10)
        return password == b"right"

    authentication = BasicAuthentication({"alice": hash_password("right")}, verify=verify)
    assert authentication.check("alice", b"right")
    guess = threading.Thread(target=authentication.check, args=("alice", b"guess"))
    guess.start()
    try:
        assert started.wait(10)
        assert authentication.check("alice", b"right")
        assert guess.is_alive()
    finally:
        release.set()
        guess.join()


def test_a_password_may_contain_colons() -> None:
    assert parse_basic(basic("alice", "a:b")) == ("alice", b"a:b")


def test_the_token_bucket_allows_a_burst_and_then_one_request_per_interval() -> None:
    now = [100.0]
    bucket = TokenBucket(2.0, 3, clock=lambda: now[0])
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    now[0] += 2.0
    assert [bucket.take() for _ in range(2)] == [True, False]
    now[0] += 1000
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
