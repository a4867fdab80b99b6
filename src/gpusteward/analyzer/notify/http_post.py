"""HTTP POST of notifications: limited in time and size, one connection per call.

Redirects are refused: one could lead to another host, with the message and its signature. Proxies of the environment
are used, as gpu-oour's client did: a cluster without direct internet access may require them.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import replace

from gpusteward import __version__
from gpusteward.analyzer.notify.outbox.records import DeliveryError
from gpusteward.http.client import HttpClient, Request, Response
from gpusteward.http.connections import load_tls_context
from gpusteward.http.credentials import basic_authorization
from gpusteward.http.errors import HttpError
from gpusteward.http.urls import find_proxy, parse_url

RESPONSE_LIMIT_BYTES = 64 * 1024
_RETRIED_STATUSES = frozenset({401, 403, 404, 407, 408, 421, 425, 429})
"""Not caused by the message: an overloaded receiver, a gateway whose receiver is being replaced, a rotated token."""
_LONGEST_WAIT_SECONDS = 3600.0
_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json",
    "User-Agent": f"gpusteward/{__version__}",
    "Connection": "close",
}


def host_of(url: str) -> str:
    """The server of a URL: failures of one server are counted together."""
    try:
        return parse_url(url, allows_query=True).address
    except ValueError:
        return ""


def post(url: str, body: bytes, *, headers: Mapping[str, str], timeout: float) -> bytes:
    """The start of the response body. Raises DeliveryError for anything but 2xx; its text never contains the URL."""
    try:
        target, own = parse_url(url, allows_query=True), dict(_HEADERS)
        if target.username:
            own["Authorization"] = basic_authorization(target.username, target.password)
        tls = load_tls_context() if target.is_tls else None
        client = HttpClient(replace(target, path=""), tls=tls, proxy=find_proxy(target))
        request = Request("POST", target.target, body, {**own, **headers})
        with client.send(request, timeout_seconds=timeout) as response:
            _check_status(response)
            return _read_start(response)
    except (HttpError, ValueError) as error:
        raise DeliveryError(str(error)) from error


def _check_status(response: Response) -> None:
    status = response.status
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        raise DeliveryError(f"HTTP {status}: a redirect, which is not followed", is_refusal=True)
    is_refusal = 400 <= status < 500 and status not in _RETRIED_STATUSES
    wait_seconds = min(response.retry_after_seconds, _LONGEST_WAIT_SECONDS)
    raise DeliveryError(f"HTTP {status}", is_refusal=is_refusal, wait_seconds=wait_seconds)


def _read_start(response: Response) -> bytes:
    """The message is delivered: a response that ends early is not an error."""
    with contextlib.suppress(HttpError):
        return response.read_start(RESPONSE_LIMIT_BYTES)
    return b""
