"""The web config file of the Prometheus exporter-toolkit: TLS, basic authentication, headers, a rate limit.

Paths in it are relative to its own directory. The file and the certificates it names are read again when they
change; a change that cannot be used is logged, and what worked before stays in force.
"""

import ssl
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from gpusteward.agent.http.access import BCRYPT_HASH, BasicAuthentication, TokenBucket
from gpusteward.agent.http.tls import CIPHER_SUITES, CLIENT_AUTH, VERSIONS, TlsSettings, build_context
from gpusteward.agent.http.yaml_section import Section, load_document
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.settings import parse_duration
from gpusteward.logs import Log

log = Log(__name__)

SECTIONS = ("tls_server_config", "http_server_config", "basic_auth_users", "rate_limit")
TLS_KEYS = (
    *("cert", "key", "client_ca", "cert_file", "key_file", "client_ca_file", "client_auth_type"),
    *("client_allowed_sans", "min_version", "max_version"),
    *("cipher_suites", "prefer_server_cipher_suites", "curve_preferences"),
)
HEADERS: Mapping[str, tuple[str, ...]] = {  # the only ones that may be set, and their values (none: any)
    "Content-Security-Policy": (),
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WebConfig:
    """What is in force for a connection. The empty one is plain HTTP for everybody."""

    tls: TlsSettings | None = None
    context: ssl.SSLContext | None = None
    passwords: BasicAuthentication | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    bucket: TokenBucket | None = None

    @property
    def knows_its_clients(self) -> bool:
        """Whether only clients with a password or a verified certificate get through."""
        verifies = self.tls is not None and self.tls.client_auth is ssl.CERT_REQUIRED
        return verifies or self.passwords is not None


class WebConfigFile:
    """A web config file that is read again when it, or a file it names, changes."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigurationError when the file cannot be used."""
        self._path = path
        self._lock = threading.Lock()
        self._config = read_web_config(path)
        self._seen = self._look()

    def current(self) -> WebConfig:
        """What is in force now; costs one stat a file."""
        if self._look() != self._seen:
            with self._lock:
                self._read_again()
        return self._config

    def _read_again(self) -> None:
        seen = self._look()  # before reading: what is written meanwhile shows as a change at the next look
        if seen == self._seen:
            return  # another connection was faster
        try:
            self._config = read_web_config(self._path)
            log.info("web_config_reloaded", path=self._path)
        except ConfigurationError as error:
            log.warning("web_config_refused", path=self._path, reason=error)
        self._seen = seen

    def _look(self) -> tuple[object, ...]:
        files: Iterable[Path] = self._config.tls.files if self._config.tls else ()
        return tuple(_stamp(file) for file in (self._path, *files))


def _stamp(file: Path) -> tuple[str, int, int, int]:
    """Differs when the content may; follows the symlinks by which Kubernetes swaps mounted files."""
    try:
        status = file.stat()
    except OSError:
        return str(file), 0, 0, 0
    return str(file), status.st_ino, status.st_mtime_ns, status.st_size


def read_web_config(path: Path) -> WebConfig:
    """Read and check the whole file, certificates included.

    Raises ConfigurationError with the path and the key that cannot be used.
    """
    document = load_document(path, known=SECTIONS)
    tls_section = document.section("tls_server_config", known=TLS_KEYS)
    tls = _read_tls(tls_section)
    return WebConfig(
        tls=tls,
        context=_build_context(tls_section, tls) if tls else None,
        passwords=_read_users(document.section("basic_auth_users")),
        headers=_read_headers(document.section("http_server_config", known=("http2", "headers"))),
        bucket=_read_rate_limit(document.section("rate_limit", known=("interval", "burst"))),
    )


def _read_tls(section: Section) -> TlsSettings | None:
    certificate, key, client_ca = section.pem("cert"), section.pem("key"), section.pem("client_ca")
    if not (certificate or key or client_ca or section.text("client_auth_type")):
        return None
    if certificate is None or key is None:
        raise section.refuse("", f"lacks a {'key_file' if certificate else 'cert_file'}: TLS needs both")
    if section.texts("curve_preferences"):
        log.warning("web_config_ignored", key="curve_preferences", reason="OpenSSL chooses the curve")
    return TlsSettings(
        certificate=certificate,
        key=key,
        client_ca=client_ca,
        client_auth=_read_client_auth(section, has_ca=client_ca is not None),
        allowed_sans=_read_sans(section),
        minimum=section.choice("min_version", VERSIONS, default="TLS12"),
        maximum=section.choice("max_version", VERSIONS, default="TLS13"),
        cipher_suites=_read_cipher_suites(section),
        server_preference=section.switch("prefer_server_cipher_suites", default=True),
    )


def _read_client_auth(section: Section, *, has_ca: bool) -> ssl.VerifyMode:
    word = section.text("client_auth_type")
    if word in ("RequireAnyClientCert", "RequireClientCert"):
        why = "asks for a certificate and then believes any: choose RequireAndVerifyClientCert and a client_ca_file"
        raise section.refuse("client_auth_type", f"{word} {why}")
    mode = section.pick("client_auth_type", word, CLIENT_AUTH)
    if mode is ssl.CERT_NONE and has_ca:
        raise section.refuse("client_ca_file", "needs client_auth_type: RequireAndVerifyClientCert")
    return mode


def _read_sans(section: Section) -> frozenset[str] | None:
    names = section.texts("client_allowed_sans")
    if names is not None and section.text("client_auth_type") != "RequireAndVerifyClientCert":
        raise section.refuse("client_allowed_sans", "needs client_auth_type: RequireAndVerifyClientCert")
    return None if names is None else frozenset(names)


def _read_cipher_suites(section: Section) -> tuple[str, ...]:
    names = section.texts("cipher_suites") or ()
    return tuple(filter(None, (section.pick("cipher_suites", name, CIPHER_SUITES) for name in names)))


def _build_context(section: Section, tls: TlsSettings) -> ssl.SSLContext:
    for file in tls.files:  # OpenSSL does not say which file is missing
        if not file.is_file():
            raise section.refuse("", f"there is no file {file}")
    try:
        return build_context(tls)
    except (OSError, ValueError) as error:
        raise section.refuse("", f"certificate, key or client CA cannot be used: {error}") from error


def _read_users(section: Section) -> BasicAuthentication | None:
    for user in section.values:
        if not BCRYPT_HASH.fullmatch(section.text(user)):
            raise section.refuse(user, "is not a bcrypt hash: make one with `htpasswd -nBC 10 NAME`")
    if not section.values:
        return None
    if find_spec("bcrypt") is None:
        raise section.refuse("", "needs bcrypt, which is not installed: pip install 'gpusteward[agent]'")
    return BasicAuthentication({user: section.text(user) for user in section.values})


def _read_headers(section: Section) -> Mapping[str, str]:
    section.switch("http2", default=True)  # allowed, and of no effect: this server speaks HTTP/1.1
    headers = section.section("headers", known=tuple(HEADERS))
    for name in headers.values:
        value = headers.text(name)
        if HEADERS[name] and value:
            headers.pick(name, value, dict.fromkeys(HEADERS[name]))
        if not value.isprintable():
            raise headers.refuse(name, "must be one line")
    return {name: value for name, value in headers.values.items() if value}


def _read_rate_limit(section: Section) -> TokenBucket | None:
    interval, burst = section.values.get("interval", 0), section.values.get("burst", 0)
    if interval in (0, "0", "0s"):
        return None
    if not isinstance(burst, int) or burst < 1:
        raise section.refuse("burst", f"must be a whole number of at least 1, not {burst!r}")
    try:
        return TokenBucket(parse_duration(str(interval)), burst)
    except ValueError as error:
        raise section.refuse("interval", f"{interval!r}: {error}") from error
