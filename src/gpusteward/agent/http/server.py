"""The HTTP server of the agent: listening socket and limit of concurrent connections.

One thread per connection. Pages are rendered in advance, so a request is cheap; a hanging NVML call releases the GIL,
so pages are still served meanwhile. When the limit is reached, the connection that has waited longest for a complete
request (idle or slow) is closed in favour of the new client, or else one that has not read its response for some
seconds; if all connections are processing requests, the new client gets 503 without a thread. One address has at most
half of the connections, and an address that has at most one gets another one from a reserve: whatever some do,
scrapers and probes at other addresses are served.
"""

import errno
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from gpusteward.agent.http.connections import ClientConnection, ScrapeSlots, find_yielding
from gpusteward.agent.http.handler import TOO_MANY_CLIENTS, ConnectionHandler, ServerContext, render_head
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.settings import ListenAddress
from gpusteward.http_server.limits import limit_send_buffer
from gpusteward.http_server.web_config import WebConfig
from gpusteward.logs import Log
from gpusteward.messages.errors.os_errors import explain_os_error

if TYPE_CHECKING:
    from gpusteward.agent.endpoints import AgentEndpoints

log = Log(__name__)

IDLE_SECONDS = 75.0  # longer than usual scrape intervals, so that scrapers can keep their connection
IDLE_CONNECTIONS = 48  # in addition to concurrent scrapes: scrapers, probes and browsers between two requests
# In addition, two for each address: the next connection may come before the last one has ended.
RESERVED_CONNECTIONS = 16
REPORT_SECONDS = 60.0  # refused connections are logged at most this often


def serve(
    content: "AgentEndpoints",
    address: ListenAddress,
    *,
    web: Callable[[], WebConfig] = WebConfig,
    max_concurrent_scrapes: int = 16,
    read_seconds: float = 10.0,
    write_seconds: float = 30.0,
    expose_snapshot: bool = False,
) -> "Server":
    """Listen and serve from background threads until `close`.

    Raises ConfigurationError when it cannot listen on the address.
    """
    context = ServerContext(
        content=content,
        web=web,
        scrapes=ScrapeSlots(max_concurrent_scrapes),
        read_seconds=read_seconds,
        write_seconds=write_seconds,
        idle_seconds=max(IDLE_SECONDS, read_seconds),
        expose_snapshot=expose_snapshot,
    )
    return Server(listen(address), context, max_connections=max_concurrent_scrapes + IDLE_CONNECTIONS)


class Server:
    """A listening socket, the accepting thread, and the open connections."""

    def __init__(self, listener: socket.socket, context: ServerContext, *, max_connections: int) -> None:
        self.max_connections = max_connections
        self.context = context
        self._listener = listener
        self._connections: set[ClientConnection] = set()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._refused = 0
        self._reported_at = float("-inf")
        self._acceptor = threading.Thread(target=self._accept, name="http-accept", daemon=True)
        self._acceptor.start()

    @property
    def address(self) -> ListenAddress:
        """The address it actually listens on."""
        host, port = self._listener.getsockname()[:2]
        return ListenAddress(host, port)

    @property
    def url(self) -> str:
        """The base URL for clients on this machine."""
        scheme = "https" if self.context.web().context else "http"
        host, port = self.address
        return f"{scheme}://{ListenAddress(host if host.strip(':.0') else 'localhost', port)}"

    @property
    def connections(self) -> tuple[ClientConnection, ...]:
        """The connections that are open now."""
        with self._lock:
            return tuple(self._connections)

    def close(self) -> None:
        """Stop listening and shut all connections down."""
        self._closing.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._acceptor.join()
        self._listener.close()
        for connection in self.connections:
            connection.shut_down()

    def admit(self, connection: ClientConnection) -> None:
        """Serve the connection in its own thread, or refuse it when the limit is reached."""
        if not self._ensure_capacity(connection.client):
            self._refuse(connection)
            return
        limit_send_buffer(connection.socket)
        with self._lock:
            self._connections.add(connection)
        try:
            threading.Thread(target=self._serve, args=(connection,), name="http", daemon=True).start()
        except RuntimeError:  # the container's limit of threads
            self._remove(connection)
            self._refuse(connection)

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                client_socket, client = self._listener.accept()
            except OSError as error:
                if not self._closing.is_set():
                    log.warning("connection_not_accepted", reason=error)
                    self._closing.wait(0.2)  # out of file descriptors: do not spin
                continue
            self.admit(ClientConnection(client_socket, client[0]))

    def _ensure_capacity(self, client: str) -> bool:
        """Below the limits, or after closing a connection that yields."""
        with self._lock:
            own = [each for each in self._connections if each.client == client]
            is_share_taken = len(own) >= max(1, self.max_connections // 2)
            most = self.max_connections + (RESERVED_CONNECTIONS if len(own) < 2 else 0)
            if not is_share_taken and len(self._connections) < most:
                return True
            yielding = find_yielding(own if is_share_taken else self._connections)
            if yielding is None:
                return False
            self._connections.remove(yielding)
            yielding.shut_down()
            return True

    def _serve(self, connection: ClientConnection) -> None:
        try:
            ConnectionHandler(connection, self.context).run()
        finally:
            self._remove(connection)

    def _remove(self, connection: ClientConnection) -> None:
        with self._lock:
            self._connections.discard(connection)

    def _refuse(self, connection: ClientConnection) -> None:
        """Send 503 if the socket accepts it without blocking (not possible with TLS), and close."""
        client_socket = connection.socket
        with client_socket, suppress(OSError):
            if self.context.web().context is None:
                client_socket.setblocking(False)
                client_socket.send(render_head(TOO_MANY_CLIENTS, [("Connection", "close")]) + TOO_MANY_CLIENTS.body)
                client_socket.shutdown(socket.SHUT_WR)
        self._refused += 1
        if time.monotonic() - self._reported_at >= REPORT_SECONDS:
            self._reported_at = time.monotonic()
            log.warning("connections_refused", total=self._refused, limit=self.max_connections)


def listen(address: ListenAddress) -> socket.socket:
    """A listening socket; without a host for IPv4 and, where available, IPv6.

    Raises ConfigurationError when it cannot listen on the address.
    """
    try:
        if not address.host:
            dual = socket.has_dualstack_ipv6()
            family = socket.AF_INET6 if dual else socket.AF_INET
            return socket.create_server(("", address.port), family=family, backlog=128, dualstack_ipv6=dual)
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, where = found[0]
        return socket.create_server((str(where[0]), address.port), family=family, backlog=128)
    except OSError as error:
        host, port = address
        reasons = {
            errno.EADDRINUSE: f"port {port} is in use; choose another one with --address :PORT",
            errno.EADDRNOTAVAIL: f"{host} is not an address of this machine; use one that is, or only :{port}",
            errno.EACCES: f"port {port} needs privileges; choose one above 1023 with --address :PORT",
        }
        reason: object = reasons.get(error.errno or 0) or explain_os_error(error)
        if isinstance(error, socket.gaierror):  # its numbers are not those of the others
            reason = f"unknown host {host!r}; use an address of this machine, or only :{port}"
        raise ConfigurationError(f"cannot listen on {address}: {reason}") from error
