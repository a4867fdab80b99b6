"""/metrics, /healthz, /readyz and /snapshot over HTTP: listening, and how many clients are let in.

One thread a connection. Pages are ready when a client comes, so a request costs little; and a call into NVML that
hangs gives up the interpreter's lock, so the page is still served. Over the limit the connection that has waited
longest for a whole request makes room, be it idle, silent or slow; if all are being answered the new client gets 503,
without a thread of its own.
"""

import errno
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from gpusteward.agent.http.handler import Connection, ConnectionHandler, ContentProvider, ServerContext
from gpusteward.agent.http.responses import TOO_MANY_CLIENTS, render_head
from gpusteward.agent.http.web_config import WebConfig
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.settings import ListenAddress
from gpusteward.logs import Log

log = Log(__name__)

IDLE_SECONDS = 75.0  # a connection outlives the gap between two scrapes, which is mostly a minute or less
IDLE_CONNECTIONS = 48  # beside the concurrent scrapes: scrapers, probes and browsers that wait for their next request
REPORT_SECONDS = 60.0  # how often refused connections are worth a log line


def serve(
    answers: ContentProvider,
    address: ListenAddress,
    *,
    web: Callable[[], WebConfig] = WebConfig,
    max_concurrent_scrapes: int = 16,
    read_seconds: float = 10.0,
    write_seconds: float = 30.0,
    expose_snapshot: bool = False,
) -> "Server":
    """Listen and answer from background threads until `close`.

    Raises ConfigurationError when the address cannot be listened on.
    """
    site = ServerContext(
        answers=answers,
        web=web,
        scrapes=threading.Semaphore(max_concurrent_scrapes),
        read_seconds=read_seconds,
        write_seconds=write_seconds,
        idle_seconds=max(IDLE_SECONDS, read_seconds),
        expose_snapshot=expose_snapshot,
    )
    return Server(listen(address), site, max_connections=max_concurrent_scrapes + IDLE_CONNECTIONS)


class Server:
    """A listening socket, the thread that accepts, and the lines that are open."""

    def __init__(self, listener: socket.socket, site: ServerContext, *, max_connections: int) -> None:
        self._listener = listener
        self._site = site
        self._max_connections = max_connections
        self._lines: set[Connection] = set()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._refused = 0
        self._reported_at = float("-inf")
        self._acceptor = threading.Thread(target=self._accept, name="http-accept", daemon=True)
        self._acceptor.start()

    @property
    def address(self) -> ListenAddress:
        """Where it really listens."""
        host, port = self._listener.getsockname()[:2]
        return ListenAddress(host, port)

    @property
    def url(self) -> str:
        """An address to click on, from this machine."""
        scheme = "https" if self._site.web().context else "http"
        host, port = self.address
        return f"{scheme}://{ListenAddress(host if host.strip(':.0') else 'localhost', port)}"

    def close(self) -> None:
        """Stop listening and hang up on everybody."""
        self._closing.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._acceptor.join()
        self._listener.close()
        with self._lock:
            lines = list(self._lines)
        for line in lines:
            line.hang_up()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, client = self._listener.accept()
            except OSError as error:
                if not self._closing.is_set():
                    log.warning("connection_not_accepted", reason=error)
                    self._closing.wait(0.2)  # out of file descriptors: spinning would make it worse
                continue
            self._admit(Connection(connection, client[0]))

    def _admit(self, line: Connection) -> None:
        if not self._has_room():
            self._turn_away(line)
            return
        with self._lock:
            self._lines.add(line)
        try:
            threading.Thread(target=self._converse, args=(line,), name="http", daemon=True).start()
        except RuntimeError:  # the container's limit of threads
            self._forget(line)
            self._turn_away(line)

    def _has_room(self) -> bool:
        with self._lock:
            if len(self._lines) < self._max_connections:
                return True
            waiting = [(line.waiting_since, line) for line in self._lines if line.waiting_since is not None]
            if not waiting:
                return False
            _, longest = min(waiting, key=lambda pair: pair[0])
            longest.waiting_since = None  # it is on its way out
            longest.hang_up()
            return True

    def _converse(self, line: Connection) -> None:
        try:
            ConnectionHandler(line, self._site).run()
        finally:
            self._forget(line)

    def _forget(self, line: Connection) -> None:
        with self._lock:
            self._lines.discard(line)

    def _turn_away(self, line: Connection) -> None:
        """Say 503 if the socket takes it at once (under TLS it cannot be said), and hang up."""
        with line.connection, suppress(OSError):
            if self._site.web().context is None:
                line.connection.setblocking(False)
                line.connection.send(render_head(TOO_MANY_CLIENTS, [("Connection", "close")]) + TOO_MANY_CLIENTS.body)
                line.connection.shutdown(socket.SHUT_WR)
        self._refused += 1
        if time.monotonic() - self._reported_at >= REPORT_SECONDS:
            self._reported_at = time.monotonic()
            log.warning("connections_refused", total=self._refused, limit=self._max_connections)


def listen(address: ListenAddress) -> socket.socket:
    """A listening socket; without a host it takes IPv4 and, where there is one, IPv6.

    Raises ConfigurationError when the address cannot be listened on.
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
        raise ConfigurationError(f"cannot listen on {address}: {_explain(error, address)}") from error


def _explain(error: OSError, address: ListenAddress) -> str:
    host, port = address
    if isinstance(error, socket.gaierror):
        return f"the host {host!r} is not known here; write an address of this machine, or only :{port}"
    reasons = {
        errno.EADDRINUSE: f"port {port} is in use; choose another one with --address :PORT",
        errno.EADDRNOTAVAIL: f"{host} is not an address of this machine; write one that is, or only :{port}",
        errno.EACCES: f"port {port} needs privileges this process lacks; choose one above 1023 with --address :PORT",
    }
    return reasons.get(error.errno or 0, error.strerror or str(error))
