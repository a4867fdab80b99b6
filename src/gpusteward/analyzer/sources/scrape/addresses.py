"""`node-7`, `node-7:9400`, `https://node-7/metrics`: where to knock."""

import re
from dataclasses import dataclass

from gpusteward.core.errors import ConfigurationError

DEFAULT_PORT = 9400
DEFAULT_PATH = "/metrics"
_TEXT = re.compile(
    r"(?:(?P<scheme>https?)://)?(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?(?P<path>/\S*)?"
)
_URL_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """One page of one exporter."""

    scheme: str
    host: str  # of IPv6 without brackets
    port: int
    path: str = DEFAULT_PATH

    @property
    def instance(self) -> str:
        """As Prometheus labels it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_tls(self) -> bool:
        return self.scheme == "https"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.instance}{self.path}"


def parse_address(text: str, *, scheme: str = "http", port: int = DEFAULT_PORT, path: str = DEFAULT_PATH) -> Address:
    """A host with what is missing filled in; a URL without a port means that of its scheme. Raises ConfigurationError.

    Credentials have no place here: an address is shown to everybody who may read.
    """
    match = _TEXT.fullmatch(text.strip())
    if match is None or not 0 < int(match["port"] or 1) <= 65535:
        raise ConfigurationError(f"target {_shorten(text)!r}: write HOST, HOST:PORT or http://HOST:PORT/PATH")
    chosen = match["scheme"] or scheme
    missing = _URL_PORTS[chosen] if match["scheme"] else port
    return Address(chosen, match["host"].strip("[]"), int(match["port"] or missing), match["path"] or path)


def _shorten(text: str) -> str:
    """Without what may be a password before an @."""
    return text.rpartition("@")[2][:100]
