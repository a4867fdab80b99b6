"""Client of the kubelet's pod-resources API: gRPC over a unix socket.

The kubelet keeps listing pods for a while after they ended; the pods of the API server show which of them are still
running.

A kubelet that hangs is not waited for in every cycle: after a timeout it is queried again after growing delays.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from gpusteward.agent.kubernetes.claims import Claim, Listing, accept_names, decode_listing
from gpusteward.agent.kubernetes.grpc_client import (
    UNIMPLEMENTED,
    GrpcConnection,
    MessageTooLargeError,
    ProtocolError,
    StatusError,
)
from gpusteward.agent.kubernetes.podresources import DecodeError, ListPodResourcesResponse, decode
from gpusteward.core.errors import SourceError

__all__ = ["Claim", "KubeletClient", "Listing"]

MESSAGE_LIMIT_BYTES = 4 * 2**20  # 65,000 device ids; what is decoded takes up to 13 times as much memory
TIMEOUT_SECONDS = 2.0  # a guess: a kubelet responds in milliseconds, and a cycle must not wait for one that hangs
FIRST_BACKOFF_SECONDS = 5.0
MAX_BACKOFF_SECONDS = 30.0
"""Half the time for which claims stay valid, so that a kubelet that hung shortly is queried again before they end."""

_METHOD = "/v1.PodResourcesLister/List"
_REQUEST = b""  # ListPodResourcesRequest has no fields


class KubeletClient:
    """Queries the kubelet of this node. The connection stays open between reads."""

    def __init__(
        self,
        socket_path: Path,
        resource_names: Iterable[str] = (),
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`resource_names` are accepted in addition to `claims.RESOURCE_NAMES`, exact or with a `*` at the end."""
        self._path = str(socket_path)
        self.accepts = accept_names(resource_names)
        self._timeout_seconds = timeout_seconds
        self._clock = clock  # of the delays
        self._backoff = 0.0
        self._retry_at = 0.0
        self._last: tuple[bytes, Listing] | None = None  # the last response
        self._hang = ""  # the reason, if the last query timed out
        self._lock = threading.Lock()
        self._connection: GrpcConnection | None = None
        self._is_closed = False

    def read(self) -> tuple[Claim, ...]:
        """All claims on GPUs of this node. Raises SourceError as `read_listing` does."""
        return self.read_listing().claims

    def read_listing(self) -> Listing:
        """All pods of this node and their claims on GPUs.

        Raises SourceError with advice if the kubelet cannot be queried or its response is invalid, and at once until
        the delay after a timeout is over.
        """
        with self._lock:
            if self._is_closed:
                raise SourceError("the connection to the kubelet is closed")
            if self._hang and self._clock() < self._retry_at:
                raise SourceError(self._hang)
            try:
                listing = self._decode(self._query())
            except TimeoutError as error:
                self._delay(error)
                raise SourceError(self._hang) from error
            except (OSError, ValueError, ProtocolError, MessageTooLargeError, StatusError) as error:
                self._hang = ""
                raise SourceError(self._explain(error)) from error
            self._hang, self._backoff = "", 0.0
            return listing

    def close(self) -> None:
        """Close the connection permanently."""
        with self._lock:
            self._is_closed = True
            self._disconnect()

    def _decode(self, message: bytes) -> Listing:
        """Raises DecodeError. Most responses are the same as the last one, and decoding is most of their cost."""
        if self._last is None or self._last[0] != message:
            listing = decode_listing(decode(message, ListPodResourcesResponse), self.accepts)
            self._last = (message, listing)
        return self._last[1]

    def _delay(self, error: TimeoutError) -> None:
        """Query again after twice the last delay."""
        self._hang = self._explain(error)
        self._backoff = min(max(2 * self._backoff, FIRST_BACKOFF_SECONDS), MAX_BACKOFF_SECONDS)
        self._retry_at = self._clock() + self._backoff

    def _query(self) -> bytes:
        deadline = time.monotonic() + self._timeout_seconds
        was_open = self._connection is not None
        try:
            return self._query_once(deadline)
        except ConnectionError:
            # A kubelet restart is noticed only by a failing request: retry once on a new connection.
            if was_open:
                return self._query_once(deadline)
            raise

    def _query_once(self, deadline: float) -> bytes:
        connection = self._connection = self._connection or self._connect(deadline)
        is_usable = False
        try:
            response = connection.call(_METHOD, _REQUEST, deadline=deadline)
            is_usable = connection.is_usable
        finally:
            if not is_usable:
                self._disconnect()
        return response

    def _connect(self, deadline: float) -> GrpcConnection:
        connected = socket.socket(socket.AF_UNIX)
        try:
            connected.settimeout(max(deadline - time.monotonic(), 0.001))
            connected.connect(self._path)
        except BaseException:
            connected.close()
            raise
        return GrpcConnection(connected, limit_bytes=MESSAGE_LIMIT_BYTES)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _explain(self, error: Exception) -> str:
        return f"the kubelet's pod-resources socket {self._path} {_describe(error, self._timeout_seconds)}"


def _describe(error: Exception, timeout_seconds: float) -> str:
    """The error, its likely cause and advice, as the end of a sentence about the socket."""
    match error:
        case TimeoutError():
            return f"did not respond within {timeout_seconds:g} s: check whether the kubelet is overloaded or hangs"
        case FileNotFoundError():
            return "does not exist: mount its directory from the host, or set --pod-resources-kubelet-socket"
        case PermissionError():
            return "cannot be opened for lack of permission: run as root, and check SELinux or AppArmor"
        case ConnectionRefusedError():
            return "refuses connections: the kubelet is down, or the path is not its socket"
        case ConnectionError():
            return f"was closed during the request: the kubelet restarts, or this is not a gRPC server ({error})"
        case StatusError(status=status) if status == UNIMPLEMENTED:
            return "does not support pod-resources v1: Kubernetes 1.20 or newer is required"
        case StatusError():
            return f"returned an error: {error}"
        case MessageTooLargeError():
            return f"returned {error}, more than the limit of {MESSAGE_LIMIT_BYTES >> 20} MiB"
        case DecodeError():
            return f"returned a response that is not pod-resources v1: {error}"
        case ProtocolError():
            return f"returned an invalid response, this is not a gRPC server: {error}"
        case _:
            return f"cannot be reached: {error}"
