"""A kubelet that serves pod-resources over true gRPC on a unix socket, with named misfortunes.

with FakeKubelet(tmp_path / "kubelet.sock", answer(given("team", "train-0", "main", "GPU-1"))) as kubelet:
    ...
    kubelet.misfortune = Misfortune.HANGS
"""

import asyncio
import threading
from enum import Enum, auto
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from google.protobuf.message import Message
from grpclib.const import Cardinality, Handler, Status
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError
from grpclib.server import Server

from gpusteward.agent.kubernetes import podresources_pb2 as wire

METHOD = "/v1.PodResourcesLister/List"


class Misfortune(Enum):
    """What can befall a kubelet that was asked."""

    NONE = auto()
    HANGS = auto()  # takes the question, never answers
    CLOSES = auto()  # drops the connection instead of an answer
    RESETS = auto()  # ends the stream without a status
    REFUSES = auto()  # too many questions
    KNOWS_NO_V1 = auto()  # before Kubernetes 1.20
    SPEAKS_HTTP1 = auto()  # somebody else's socket; chosen before the start
    NEVER_SPEAKS = auto()  # accepts the connection, says nothing at all; chosen before the start


class FakeKubelet:
    """Serves `answer`, a message or raw bytes, from a thread of its own until the `with` ends."""

    def __init__(self, path: Path, answer: Message | bytes = b"", *, misfortune: Misfortune = Misfortune.NONE) -> None:
        self.path = path
        self.answer = answer
        self.misfortune = misfortune
        self.questions = 0
        self.connections: set[Any] = set()
        self._transports: set[asyncio.WriteTransport] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10), "the fake kubelet did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        assert not self._thread.is_alive(), "the fake kubelet did not stop"

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        if self.misfortune in (Misfortune.SPEAKS_HTTP1, Misfortune.NEVER_SPEAKS):
            await self._serve_nonsense()
        else:
            await self._serve_grpc()
        for transport in self._transports:
            transport.abort()  # an answer half sent would keep it open
        await asyncio.sleep(0)
        self.path.unlink(missing_ok=True)

    async def _serve_grpc(self) -> None:
        server = Server([_Service(self)], codec=_Bytes())
        await server.start(path=str(self.path))
        self._ready.set()
        await self._stop.wait()
        server.close()
        await server.wait_closed()

    async def _serve_nonsense(self) -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._transports.add(writer.transport)
            if self.misfortune is Misfortune.SPEAKS_HTTP1:
                writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            else:
                await reader.read(-1)  # until the other side gives up
            writer.close()

        async with await asyncio.start_unix_server(talk, str(self.path)):
            self._ready.set()
            await self._stop.wait()

    async def list_pod_resources(self, stream: Any) -> None:
        connection = stream._stream.connection
        self.questions += 1
        self.connections.add(connection)
        self._transports.add(connection._transport)
        await stream.recv_message()
        match self.misfortune:
            case Misfortune.HANGS:
                await self._stop.wait()
            case Misfortune.CLOSES:
                connection.close()
            case Misfortune.RESETS:
                await stream.cancel()
            case Misfortune.KNOWS_NO_V1:
                raise GRPCError(Status.UNIMPLEMENTED, "unknown service v1.PodResourcesLister")
            case Misfortune.REFUSES:
                raise GRPCError(Status.RESOURCE_EXHAUSTED, "rejected by rate limit")
            case _:
                is_message = isinstance(self.answer, Message)
                await stream.send_message(self.answer.SerializeToString() if is_message else self.answer)


class _Service:
    def __init__(self, kubelet: FakeKubelet) -> None:
        self._kubelet = kubelet

    def __mapping__(self) -> dict[str, Handler]:
        return {METHOD: Handler(self._kubelet.list_pod_resources, Cardinality.UNARY_UNARY, bytes, bytes)}


class _Bytes(CodecBase):
    """Sends what it is given, so that an answer can be anything."""

    __content_subtype__ = "proto"

    def encode(self, message: bytes, message_type: Any) -> bytes:
        return message

    def decode(self, data: bytes, message_type: Any) -> bytes:
        return data


def answer(*pods: wire.PodResources) -> wire.ListPodResourcesResponse:
    """What the kubelet says."""
    return wire.ListPodResourcesResponse(pod_resources=pods)


def given(
    namespace: str, pod: str, container: str, *device_ids: str, resource: str = "nvidia.com/gpu"
) -> wire.PodResources:
    """A pod whose one container was given these devices by a device plugin."""
    devices = wire.ContainerDevices(resource_name=resource, device_ids=device_ids)
    return _pod(namespace, pod, wire.ContainerResources(name=container, devices=[devices]))


def claimed(
    namespace: str, pod: str, container: str, device: str, *, cdi: str = "", driver: str = "gpu.nvidia.com"
) -> wire.PodResources:
    """A pod whose one container was given this device by a claim named after the pod."""
    resource = wire.ClaimResource(driver_name=driver, pool_name="node-1", device_name=device)
    if cdi:
        resource.cdi_devices.add(name=cdi)
    claim = wire.DynamicResource(claim_name=f"{pod}-gpu", claim_namespace=namespace, claim_resources=[resource])
    return _pod(namespace, pod, wire.ContainerResources(name=container, dynamic_resources=[claim]))


def _pod(namespace: str, name: str, container: wire.ContainerResources) -> wire.PodResources:
    return wire.PodResources(namespace=namespace, name=name, containers=[container])
