"""A fake kubelet that serves pod-resources over real gRPC on a unix socket, with named faults.

with FakeKubelet(tmp_path / "kubelet.sock", response(device_claim("team", "train-0", "main", "GPU-1"))) as kubelet:
    ...
    kubelet.fault = Fault.HANGS
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

from tests.fakes import podresources_pb2 as messages

METHOD = "/v1.PodResourcesLister/List"


class Fault(Enum):
    """How the kubelet fails."""

    NONE = auto()
    HANGS = auto()  # accepts the request, never responds
    CLOSES = auto()  # closes the connection instead of responding
    RESETS = auto()  # ends the stream without a status
    REFUSES = auto()  # rate limit
    NO_V1 = auto()  # before Kubernetes 1.20
    HTTP1_ONLY = auto()  # another server's socket; set before the start
    SENDS_NOTHING = auto()  # accepts the connection, sends nothing; set before the start


class FakeKubelet:
    """Serves `response`, a message or raw bytes, from its own thread until the `with` block ends."""

    def __init__(self, path: Path, response: Message | bytes = b"", *, fault: Fault = Fault.NONE) -> None:
        self.path = path
        self.response = response
        self.fault = fault
        self.requests = 0
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
        if self.fault in (Fault.HTTP1_ONLY, Fault.SENDS_NOTHING):
            await self._serve_nonsense()
        else:
            await self._serve_grpc()
        for transport in self._transports:
            transport.abort()  # a partly sent response would keep it open
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
            if self.fault is Fault.HTTP1_ONLY:
                writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            else:
                await reader.read(-1)  # until the client gives up
            writer.close()

        async with await asyncio.start_unix_server(talk, str(self.path)):
            self._ready.set()
            await self._stop.wait()

    async def list_pod_resources(self, stream: Any) -> None:
        connection = stream._stream.connection
        self.requests += 1
        self.connections.add(connection)
        self._transports.add(connection._transport)
        await stream.recv_message()
        match self.fault:
            case Fault.HANGS:
                await self._stop.wait()
            case Fault.CLOSES:
                connection.close()
            case Fault.RESETS:
                await stream.cancel()
            case Fault.NO_V1:
                raise GRPCError(Status.UNIMPLEMENTED, "unknown service v1.PodResourcesLister")
            case Fault.REFUSES:
                raise GRPCError(Status.RESOURCE_EXHAUSTED, "rejected by rate limit")
            case _:
                is_message = isinstance(self.response, Message)
                await stream.send_message(self.response.SerializeToString() if is_message else self.response)


class _Service:
    def __init__(self, kubelet: FakeKubelet) -> None:
        self._kubelet = kubelet

    def __mapping__(self) -> dict[str, Handler]:
        return {METHOD: Handler(self._kubelet.list_pod_resources, Cardinality.UNARY_UNARY, bytes, bytes)}


class _Bytes(CodecBase):
    """Sends bytes unchanged, so that a response can be anything."""

    __content_subtype__ = "proto"

    def encode(self, message: bytes, message_type: Any) -> bytes:
        return message

    def decode(self, data: bytes, message_type: Any) -> bytes:
        return data


def response(*pods: messages.PodResources) -> messages.ListPodResourcesResponse:
    """A response of the kubelet."""
    return messages.ListPodResourcesResponse(pod_resources=pods)


def device_claim(
    namespace: str, pod: str, container: str, *device_ids: str, resource: str = "nvidia.com/gpu"
) -> messages.PodResources:
    """A pod with one container that a device plugin assigned these devices to."""
    devices = messages.ContainerDevices(resource_name=resource, device_ids=device_ids)
    return _pod(namespace, pod, messages.ContainerResources(name=container, devices=[devices]))


def dra_claim(
    namespace: str, pod: str, container: str, device: str, *, cdi: str = "", driver: str = "gpu.nvidia.com"
) -> messages.PodResources:
    """A pod with one container that got this device by a DRA claim named after the pod."""
    resource = messages.ClaimResource(driver_name=driver, pool_name="node-1", device_name=device)
    if cdi:
        resource.cdi_devices.add(name=cdi)
    claim = messages.DynamicResource(claim_name=f"{pod}-gpu", claim_namespace=namespace, claim_resources=[resource])
    return _pod(namespace, pod, messages.ContainerResources(name=container, dynamic_resources=[claim]))


def _pod(namespace: str, name: str, container: messages.ContainerResources) -> messages.PodResources:
    return messages.PodResources(namespace=namespace, name=name, containers=[container])
