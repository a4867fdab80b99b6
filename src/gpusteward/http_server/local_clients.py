"""Whether a request comes from this machine, so that it may do without a token or password.

The address of the peer decides. Headers can only revoke that: a forwarded request, one for another host name (DNS
rebinding in a browser), or one sent by a foreign web page is not local.
"""

import ipaddress
from collections.abc import Iterable
from typing import Protocol
from urllib.parse import urlsplit

OWN_ADDRESSES = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1"})
"""Not all of 127.0.0.0/8: the proxy of a service mesh forwards remote clients from 127.0.0.6."""

FORWARDED = frozenset({"forwarded", "via", "x-real-ip", "x-client-ip", "x-original-forwarded-for", "true-client-ip"})
FORWARDED_PREFIXES = ("x-forwarded-", "x-envoy-", "l5d-")  # also what Envoy and Linkerd add


class RequestHeaders(Protocol):
    """Headers by name, in any case."""

    def keys(self) -> Iterable[str]: ...

    def get(self, name: str, default: str, /) -> str: ...


def is_local_request(client: str, headers: RequestHeaders) -> bool:
    """`client`: the address of the peer."""
    return (
        client.partition("%")[0] in OWN_ADDRESSES
        and not any(name in FORWARDED or name.startswith(FORWARDED_PREFIXES) for name in map(str.lower, headers.keys()))
        and is_local_name(headers.get("host", "localhost"))  # a browser always sends it
        and not is_from_foreign_page(headers)
    )


def is_local_name(host: str) -> bool:
    """Whether a `Host` header names this machine: `localhost`, a name below it, or a loopback address."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        is_localhost = name == "localhost" or name.endswith(".localhost")
        return is_localhost or ipaddress.ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False


def is_from_foreign_page(headers: RequestHeaders) -> bool:
    """Whether a browser says that another site's page sent the request."""
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return True
    page = find_page_host(headers)
    return page is not None and page != headers.get("host", "")


def find_page_host(headers: RequestHeaders) -> str | None:
    """Host and port of the page that sent the request: of `Origin`, or of `Referer`, which browsers send with links and
    older ones with forms. Empty: a page that does not say; None: neither header."""
    page = headers.get("origin", "") or headers.get("referer", "")
    return page.partition("//")[2].partition("/")[0] if page else None
