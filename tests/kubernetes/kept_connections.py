"""Requests to API servers over connections that are kept: a new one costs several times as much as a request."""

import http.client
import ssl
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path

TIMEOUT_SECONDS = 30.0


class _Connection(http.client.HTTPSConnection):
    def __del__(self) -> None:
        self.close()


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.connections: dict[tuple[str, int, Path], _Connection] = {}


_of_thread = _OfThread()


def send(
    address: tuple[str, int, Path], method: str, path: str, *, body: bytes | None, headers: Mapping[str, str]
) -> tuple[int, bytes]:
    """Status and body of the response. `address`: host, port and the file of the certificate authority.

    Raises OSError or HTTPException. A server may have closed a kept connection: then a new one is used.
    """
    connection = _of_thread.connections.get(address)
    if connection is not None:
        try:
            return _exchange(connection, method, path, body, headers)
        except (ConnectionError, http.client.RemoteDisconnected, ssl.SSLEOFError):
            pass
    host, port, ca_path = address
    connection = _Connection(host, port, timeout=TIMEOUT_SECONDS, context=_trust(ca_path))
    _of_thread.connections[address] = connection
    return _exchange(connection, method, path, body, headers)


def _exchange(
    connection: _Connection, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
) -> tuple[int, bytes]:
    try:
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        return response.status, response.read()
    except BaseException:
        connection.close()
        raise


@cache
def _trust(ca_path: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_path)
