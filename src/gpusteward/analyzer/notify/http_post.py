"""The only door to HTTP in this room: POST, bounded in time and size, redirects refused.

A redirect could lead to a host nobody chose, with the message and its signature. A connection serves one call, and is
hung up on when the time for the whole call is over: each byte of a dripping answer would begin a new wait otherwise.
Proxies of the environment are used, as gpu-oour's client did: out of a closed cluster there may be no other way.
"""

import base64
import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from gpusteward import __version__
from gpusteward.analyzer.notify.errors import DeliveryError

LONGEST_ANSWER = 64 * 1024
_PASSING = frozenset({401, 403, 404, 407, 408, 421, 425, 429})
"""Not about the message: a receiver that is busy, a gateway whose receiver is being replaced, a token being changed."""
_LONGEST_WAIT_SECONDS = 3600.0
_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json",
    "User-Agent": f"gpusteward/{__version__}",
    "Connection": "close",
}


def host_of(url: str) -> str:
    """Whose failures count together."""
    parts = urlsplit(url)
    return f"{parts.hostname or ''}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


def post(url: str, body: bytes, *, headers: Mapping[str, str], timeout: float) -> bytes:
    """The answer, or as much of it as anybody needs. Raises DeliveryError for anything but 2xx."""
    parts = urlsplit(url)
    with _translated(timeout):
        connection, path, own = _prepare(parts, timeout)
        with _hung_up_after(timeout, connection):
            connection.request("POST", path, body, {**_HEADERS, **_credentials(parts), **own, **headers})
            with connection.getresponse() as response:
                _refuse(response)
                return _read(response)


def _prepare(parts: SplitResult, timeout: float) -> tuple[HTTPConnection, str, Mapping[str, str]]:
    """A connection, not yet open, what to ask it for, and what a proxy wants to know."""
    path = urlunsplit(("", "", parts.path or "/", parts.query, ""))
    proxy = _find_proxy(parts)
    near = proxy or parts
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(near.hostname or "", near.port, timeout=timeout)
    if proxy is None:
        return connection, path, {}
    if parts.scheme == "http":
        return connection, f"http://{parts.netloc.rpartition('@')[2]}{path}", _proxy_credentials(proxy)
    connection.set_tunnel(parts.hostname or "", parts.port, headers=_proxy_credentials(proxy))
    return connection, path, {}


def _find_proxy(parts: SplitResult) -> SplitResult | None:
    from urllib.request import getproxies, proxy_bypass

    address = getproxies().get(parts.scheme, "")
    if not address or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    return urlsplit(address if "://" in address else f"http://{address}")


def _credentials(parts: SplitResult) -> dict[str, str]:
    return {"Authorization": _basic(parts)} if parts.username else {}


def _proxy_credentials(proxy: SplitResult) -> dict[str, str]:
    return {"Proxy-Authorization": _basic(proxy)} if proxy.username else {}


def _basic(parts: SplitResult) -> str:
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


@contextlib.contextmanager
def _hung_up_after(seconds: float, connection: HTTPConnection) -> Iterator[None]:
    """Closing does not wake who waits for an answer; shutting the socket down does."""

    def hang_up() -> None:
        sock: socket.socket | None = connection.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, hang_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        connection.close()


@contextlib.contextmanager
def _translated(timeout: float) -> Iterator[None]:
    """Foreign errors in words without an address, which may have a token in it."""
    try:
        yield
    except TimeoutError as error:
        raise DeliveryError(f"no answer within {timeout:g} s") from error
    except (OSError, HTTPException, ValueError) as error:
        raise DeliveryError(f"the call broke ({type(error).__name__})") from error


def _refuse(response: HTTPResponse) -> None:
    status = response.status
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        raise DeliveryError(f"HTTP {status}: a redirect, which is not followed", is_refusal=True)
    is_refusal = 400 <= status < 500 and status not in _PASSING
    raise DeliveryError(f"HTTP {status}", is_refusal=is_refusal, wait_seconds=_asked_wait(response))


def _asked_wait(response: HTTPResponse) -> float:
    text = response.headers.get("Retry-After", "")
    return min(float(text), _LONGEST_WAIT_SECONDS) if text.isdecimal() and len(text) < 9 else 0.0


def _read(response: HTTPResponse) -> bytes:
    """It has said 2xx: how the answer ends is of no interest."""
    with contextlib.suppress(OSError, HTTPException):
        return response.read(LONGEST_ANSWER)
    return b""
