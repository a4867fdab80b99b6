"""http and https URLs."""

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class HttpUrl:
    """A parsed URL. `str(url)` and `repr(url)` contain neither credentials nor the query."""

    scheme: str
    host: str  # an IPv6 address without brackets
    port: int
    path: str = ""
    query: str = field(default="", repr=False)
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    @property
    def is_tls(self) -> bool:
        return self.scheme == "https"

    @property
    def address(self) -> str:
        """`host:port`, as Prometheus writes it in the label `instance`."""
        return f"{self._bracketed_host}:{self.port}"

    @property
    def host_header(self) -> str:
        """The host, with its port unless that is the default of the scheme."""
        return self._bracketed_host if self.port == DEFAULT_PORTS[self.scheme] else self.address

    @property
    def target(self) -> str:
        """Path and query, as they are requested."""
        return (self.path or "/") + (f"?{self.query}" if self.query else "")

    @property
    def _bracketed_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host_header}{self.path}"


def parse_url(text: str, *, allows_query: bool = False) -> HttpUrl:
    """Raises ValueError, without repeating the text, which may contain credentials."""
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:  # its text repeats the port or the host
        raise ValueError("the host or the port is invalid") from None
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise ValueError("not an http or https URL")
    if not allows_query and (parts.query or parts.fragment):
        raise ValueError("a query or fragment is not allowed here")
    return HttpUrl(
        parts.scheme,
        parts.hostname,
        port or DEFAULT_PORTS[parts.scheme],
        parts.path,
        query=parts.query,
        username=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
    )


def find_proxy(url: HttpUrl) -> HttpUrl | None:
    """The proxy that the environment names for a URL (`https_proxy`, `no_proxy`). Raises ValueError."""
    from urllib.request import getproxies, proxy_bypass  # loads much, and most callers use no proxy

    address = getproxies().get(url.scheme, "")
    if not address or proxy_bypass(url.address):
        return None
    return parse_url(address if "://" in address else f"http://{address}", allows_query=True)
