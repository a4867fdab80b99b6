"""Device -> pod, by the kubelet's pod-resources API: gRPC over a unix socket, read in a loop of its own.

The messages are in podresources.proto. The kubelet goes on listing pods that ended a while ago; who is still alive
is for the pods of this node to tell.
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

from gpusteward.agent.kubernetes.claims import Claim, accept_names, decode_claims
from gpusteward.agent.kubernetes.podresources_pb2 import ListPodResourcesRequest, ListPodResourcesResponse
from gpusteward.core.errors import SourceError

__all__ = ["Claim", "PodResources"]

MESSAGE_LIMIT_BYTES = 16 * 2**20  # what dcgm-exporter came to, after 4 MiB was too little for big nodes
TIMEOUT_SECONDS = 2.0  # a guess: a kubelet answers in milliseconds, and a cycle must not wait for one that hangs

QUESTIONS_PER_CONNECTION = 1000
"""HTTP/2 remembers every question of a connection, about 100 bytes each: 7 MB in two weeks if it were never renewed."""

_METHOD = "/v1.PodResourcesLister/List"
_CLOSED = (StreamTerminatedError, ConnectionError, AttributeError)
"""How grpclib tells of a connection that was closed; the last one when it happened before the question was out."""


class PodResources:
    """Asks the kubelet of this node. The connection stays open between reads."""

    def __init__(
        self,
        socket_path: Path,
        resource_names: Iterable[str] = (),
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        questions_per_connection: int = QUESTIONS_PER_CONNECTION,
    ) -> None:
        """`resource_names` are accepted besides `claims.RESOURCE_NAMES`, exact or with a `*` at the end."""
        self._path = str(socket_path)
        self._accepts = accept_names(resource_names)
        self._timeout_seconds = timeout_seconds
        self._questions_per_connection = questions_per_connection
        self._turn = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_ignore)
        self._channel: Channel | None = None
        self._questions = 0  # on this channel

    def read(self) -> tuple[Claim, ...]:
        """Every claim on a GPU of this node.

        Raises SourceError, whose text says what to do, if the kubelet cannot be asked or understood.
        """
        with self._turn:
            if self._loop.is_closed():
                raise SourceError("the connection to the kubelet was closed on purpose")
            return decode_claims(self._ask(), self._accepts)

    def close(self) -> None:
        """Close the connection for good."""
        with self._turn:
            if not self._loop.is_closed():
                self._hang_up()
                self._loop.close()

    def _ask(self) -> ListPodResourcesResponse:
        if self._questions >= self._questions_per_connection:
            self._hang_up()
        was_open = self._channel is not None
        try:
            return self._ask_once()
        except SourceError as error:
            # A kubelet that restarted meanwhile is only noticed by asking it: ask the new one.
            if was_open and isinstance(error.__cause__, _CLOSED):
                return self._ask_once()
            raise

    def _ask_once(self) -> ListPodResourcesResponse:
        """Everything is caught: the libraries below have many names, `AssertionError` among them, for a bad answer."""
        try:
            return self._loop.run_until_complete(self._call())
        except (Exception, asyncio.CancelledError) as error:
            self._hang_up()
            raise SourceError(self._explain(error)) from error

    async def _call(self) -> ListPodResourcesResponse:
        if self._channel is None:
            self._channel, self._questions = Channel(path=self._path, codec=_BoundedCodec()), 0
        self._questions += 1
        method = UnaryUnaryMethod(self._channel, _METHOD, ListPodResourcesRequest, ListPodResourcesResponse)
        async with asyncio.timeout(self._timeout_seconds):
            answer: ListPodResourcesResponse = await method(ListPodResourcesRequest())
            return answer

    def _hang_up(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
            self._loop.run_until_complete(asyncio.sleep(0))  # closing the socket takes a turn of the loop

    def _explain(self, error: BaseException) -> str:
        return f"the kubelet's pod-resources socket {self._path} {_describe(error, self._timeout_seconds)}"


class _TooLargeError(ValueError):
    """An answer beyond the limit."""


class _BoundedCodec(ProtoCodec):
    """Refuses to decode too much. grpclib has no limit of its own: it has read the whole answer when we are asked."""

    def decode(self, data: bytes, message_type: Any) -> Any:
        if len(data) > MESSAGE_LIMIT_BYTES:
            raise _TooLargeError(f"{len(data)} bytes")
        return super().decode(data, message_type)


def _describe(error: BaseException, timeout_seconds: float) -> str:
    """What went wrong, why probably, what helps: the end of a sentence about the socket."""
    match error:
        case TimeoutError():
            return f"gave no answer in {timeout_seconds:g} s: see if the kubelet is overloaded or hangs"
        case FileNotFoundError():
            return "does not exist: mount its directory from the host, or set --pod-resources-kubelet-socket"
        case PermissionError():
            return "may not be opened: run as root, and see if SELinux or AppArmor forbids it"
        case ConnectionRefusedError():
            return "is not listened to: the kubelet is down, or the path is not its socket"
        case _ if isinstance(error, _CLOSED):
            return f"was closed while it answered: the kubelet restarts, or this is no gRPC server ({error})"
        case GRPCError(status=Status.UNIMPLEMENTED):
            return "does not know pod-resources v1: it takes Kubernetes 1.20 or newer"
        case GRPCError():
            return f"refused to answer: {error.status.name} {error.message or ''}".rstrip()
        case _TooLargeError():
            return f"gave an answer of {error}, over the limit of {MESSAGE_LIMIT_BYTES >> 20} MiB"
        case DecodeError():
            return f"gave an answer that is not of pod-resources v1: {error}"
        case OSError():
            return f"cannot be reached: {error}"
        case _:
            return f"gave an answer that cannot be understood: {error!r}"


def _ignore(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What breaks a connection in the background also fails the read, which is where it is told."""
