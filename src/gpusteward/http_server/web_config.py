"""The web config file of the Prometheus exporter-toolkit: TLS, basic authentication, headers, a rate limit.

Paths in it are relative to its own directory. The file and the certificates it names are reloaded when they change; an
invalid change is logged and the previous configuration stays active.
"""

import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from gpusteward.core.errors import ConfigurationError
from gpusteward.core.settings import parse_duration
from gpusteward.http_server.access import BCRYPT_HASH, BasicAuthentication, TokenBucket
from gpusteward.http_server.tls import TLS_KEYS, TlsSettings, load_context, read_tls
from gpusteward.http_server.yaml_section import Section, load_document
from gpusteward.logs import Log

log = Log(__name__)

SECTIONS = ("tls_server_config", "http_server_config", "basic_auth_users", "rate_limit")
HEADERS: Mapping[str, tuple[str, ...]] = {  # the only ones that may be set, and their values (none: any)
    "Content-Security-Policy": (),
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WebConfig:
    """The active configuration of a connection. The default is plain HTTP without authentication."""

    tls: TlsSettings | None = None
    context: ssl.SSLContext | None = None
    authentication: BasicAuthentication | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    bucket: TokenBucket | None = None

    @property
    def knows_its_clients(self) -> bool:
        """Whether only clients with a password or a verified certificate get through."""
        return (self.tls is not None and self.tls.verifies_clients) or self.authentication is not None


class WebConfigFile:
    """A web config file, reloaded when it or a file it names changes."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigurationError when the file is invalid."""
        self._path = path
        self._lock = threading.Lock()
        self.config = read_web_config(path)  # as last read
        self._seen = self._look()

    def current(self) -> WebConfig:
        """The active configuration; costs one stat per file."""
        if self._look() == self._seen:
            return self.config
        with self._lock:
            seen = self._look()  # before reading: what is written meanwhile shows as a change at the next look
            if seen != self._seen:  # else another connection was faster
                try:
                    self.config = read_web_config(self._path)
                    log.info("web_config_reloaded", path=self._path)
                except ConfigurationError as error:
                    log.warning("web_config_refused", path=self._path, reason=error)
                self._seen = seen
        return self.config

    def _look(self) -> list[tuple[object, ...]]:
        """Changes when the content of a file may have changed; follows the symlinks that Kubernetes swaps for mounted
        files."""
        seen: list[tuple[object, ...]] = []
        for file in (self._path, *(self.config.tls.files if self.config.tls else ())):
            try:
                status = file.stat()
                seen.append((file, status.st_ino, status.st_mtime_ns, status.st_size))
            except OSError:
                seen.append((file,))
        return seen


def read_web_config(path: Path) -> WebConfig:
    """Read and validate the whole file, including certificates.

    Raises ConfigurationError with the path and the invalid key.
    """
    document = load_document(path, known=SECTIONS)
    tls_section = document.section("tls_server_config", known=TLS_KEYS)
    tls = read_tls(tls_section)
    return WebConfig(
        tls=tls,
        context=load_context(tls_section, tls) if tls else None,
        authentication=_read_users(document.section("basic_auth_users")),
        headers=_read_headers(document.section("http_server_config", known=("http2", "headers"))),
        bucket=_read_rate_limit(document.section("rate_limit", known=("interval", "burst"))),
    )


def _read_users(section: Section) -> BasicAuthentication | None:
    for user in section.values:
        if not BCRYPT_HASH.fullmatch(section.text(user)):
            raise section.refuse(user, "is not a bcrypt hash: create one with `htpasswd -nBC 10 NAME`")
    if not section.values:
        return None
    if find_spec("bcrypt") is None:
        raise section.refuse("", "needs bcrypt, which is not installed: pip install gpusteward")
    return BasicAuthentication({user: section.text(user) for user in section.values})


def _read_headers(section: Section) -> Mapping[str, str]:
    section.switch("http2", default=True)  # accepted without effect: this server supports HTTP/1.1 only
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
