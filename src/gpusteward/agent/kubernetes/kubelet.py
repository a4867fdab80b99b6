"""Client of the kubelet's pod-resources API: gRPC over a unix socket, in its own event loop.

The messages are in podresources.proto. The kubelet keeps listing pods for a while after they ended; the pods of the API
server show which of them are still running.
"""

import asyncio
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Status
from grpclib.encoding.proto import ProtoCodec
from grpclib.exceptions import GRPCError, StreamTerminatedError

from gpusteward.agent.kubernetes.claims import Claim, Listing, accept_names, decode_listing
from gpusteward.agent.kubernetes.podresources_pb2 import ListPodResourcesRequest, ListPodResourcesResponse
from gpusteward.core.errors import SourceError

__all__ = ["Claim", "Listing", "PodResources"]

MESSAGE_LIMIT_BYTES = 16 * 2**20  # as in dcgm-exporter, where 4 MiB was too little for big nodes
TIMEOUT_SECONDS = 2.0  # a guess: a kubelet responds in milliseconds, and a cycle must not wait for one that hangs

REQUESTS_PER_CONNECTION = 1000
"""The HTTP/2 library keeps about 100 bytes per request of a connection: 7 MB in two weeks without reconnecting."""

_METHOD = "/v1.PodResourcesLister/List"
_CLOSED = (StreamTerminatedError, ConnectionError, AttributeError)
"""Errors of grpclib for a closed connection; AttributeError if it was closed before the request was sent."""


class PodResources:
    """Queries the kubelet of this node. The connection stays open between reads."""

    def __init__(
        self,
        socket_path: Path,
        resource_names: Iterable[str] = (),
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        requests_per_connection: int = REQUESTS_PER_CONNECTION,
    ) -> None:
        """`resource_names` are accepted in addition to `claims.RESOURCE_NAMES`, exact or with a `*` at the end."""
        self._path = str(socket_path)
        self._accepts = accept_names(resource_names)
        self._timeout_seconds = timeout_seconds
        self._requests_per_connection = requests_per_connection
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_ignore)
        self._channel: Channel | None = None
        self._requests = 0  # on this channel

    def read(self) -> tuple[Claim, ...]:
        """All claims on GPUs of this node. Raises SourceError as `read_listing` does."""
        return self.read_listing().claims

    def read_listing(self) -> Listing:
        """All pods of this node and their claims on GPUs.

        Raises SourceError with advice if the kubelet cannot be queried or its response is invalid.
        """
        with self._lock:
            if self._loop.is_closed():
                raise SourceError("the connection to the kubelet is closed")
            return decode_listing(self._query(), self._accepts)

    def close(self) -> None:
        """Close the connection permanently."""
        with self._lock:
            if not self._loop.is_closed():
                self._disconnect()
                self._loop.close()

    def _query(self) -> ListPodResourcesResponse:
        if self._requests >= self._requests_per_connection:
            self._disconnect()
        was_open = self._channel is not None
        try:
            return self._query_once()
        except SourceError as error:
            # A kubelet restart is noticed only by a failing request: retry once on a new connection.
            if was_open and isinstance(error.__cause__, _CLOSED):
                return self._query_once()
            raise

    def _query_once(self) -> ListPodResourcesResponse:
        """Catches everything: the libraries raise many errors, even AssertionError, for an invalid response."""
        try:
            return self._loop.run_until_complete(self._call())
        except (Exception, asyncio.CancelledError) as error:
            self._disconnect()
            raise SourceError(self._explain(error)) from error

    async def _call(self) -> ListPodResourcesResponse:
        if self._channel is None:
            self._channel, self._requests = Channel(path=self._path, codec=_BoundedCodec()), 0
        self._requests += 1
        method = UnaryUnaryMethod(self._channel, _METHOD, ListPodResourcesRequest, ListPodResourcesResponse)
        async with asyncio.timeout(self._timeout_seconds):
            response: ListPodResourcesResponse = await method(ListPodResourcesRequest())
            return response

    def _disconnect(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
            self._loop.run_until_complete(asyncio.sleep(0))  # closing the socket takes one iteration of the loop

    def _explain(self, error: BaseException) -> str:
        return f"the kubelet's pod-resources socket {self._path} {_describe(error, self._timeout_seconds)}"


class _ResponseTooLargeError(ValueError):
    """A response above the size limit."""


class _BoundedCodec(ProtoCodec):
    """Refuses to decode large responses. grpclib has no limit; it has read the whole response at this point."""

    def decode(self, data: bytes, message_type: Any) -> Any:
        if len(data) > MESSAGE_LIMIT_BYTES:
            raise _ResponseTooLargeError(f"{len(data)} bytes")
        return super().decode(data, message_type)


def _describe(error: BaseException, timeout_seconds: float) -> str:
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
        case _ if isinstance(error, _CLOSED):
            return f"was closed during the request: the kubelet restarts, or this is not a gRPC server ({error})"
        case GRPCError(status=Status.UNIMPLEMENTED):
            return "does not support pod-resources v1: Kubernetes 1.20 or newer is required"
        case GRPCError():
            return f"returned an error: {error.status.name} {error.message or ''}".rstrip()
        case _ResponseTooLargeError():
            return f"returned {error}, more than the limit of {MESSAGE_LIMIT_BYTES >> 20} MiB"
        case DecodeError():
            return f"returned a response that is not pod-resources v1: {error}"
        case OSError():
            return f"cannot be reached: {error}"
        case _:
            return f"returned an invalid response: {error!r}"


def _ignore(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Ignore background errors of a connection: they also fail the read, which reports them."""
