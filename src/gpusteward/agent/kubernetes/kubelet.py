"""The kubelet's list of devices: which container was assigned which, read from its pod-resources API (gRPC over a unix
socket), as claims that are valid now.

The kubelet keeps listing pods for a while after they ended; the pods of the API server show which of them are still
running. A kubelet that hangs is not waited for in every cycle: after a timeout it is queried again after growing
delays.

A restarted kubelet responds without error before it knows its pods again: for about a second, or until the API server
is available. A response that names none of the running pods is not accepted, and running pods that a response lacks
keep the claims they had, for a limited time. Static pods prove nothing: the kubelet reads them from files. While the
running pods are unknown, any other pod proves that the kubelet knows its pods.
"""

import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gpusteward.agent.kubernetes import podresources as messages
from gpusteward.agent.kubernetes.grpc_client import (
    UNIMPLEMENTED,
    GrpcConnection,
    GrpcProtocolError,
    GrpcStatusError,
    MessageTooLargeError,
)
from gpusteward.agent.kubernetes.podresources import DecodeError, ListPodResourcesResponse, decode
from gpusteward.agent.kubernetes.pods import Pod, PodName
from gpusteward.core.errors import SourceError

DRA_DRIVER = "gpu.nvidia.com"
RESOURCE_NAMES = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-*", DRA_DRIVER)
"""Resources of NVIDIA's device plugin and its DRA driver. A `*` at the end matches any rest."""

_UUID_IN_CDI_NAME = re.compile(r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
Accepts = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Claim:
    """One device that the kubelet lists for one container; not to be confused with a ResourceClaim object of DRA."""

    namespace: str
    pod: str
    container: str
    resource: str  # "nvidia.com/gpu"; the driver's name for a dynamic resource
    device_id: str
    dra: tuple[tuple[str, str], ...] = ()  # dra_* labels of a dynamic resource claim


@dataclass(frozen=True, slots=True)
class KubeletListing:
    """One response of the kubelet: the claims, and the namespace and name of every pod in it, with or without one."""

    claims: tuple[Claim, ...] = ()
    pods: frozenset[tuple[str, str]] = frozenset()


def decode_listing(response: messages.ListPodResourcesResponse, accepts: Accepts) -> KubeletListing:
    """The claims on accepted resources, without duplicates, and the names of all pods. A container without a name has
    no claims."""
    claims = dict.fromkeys(
        claim
        for pod in response.pod_resources
        if pod.name and pod.namespace
        for container in pod.containers
        if container.name
        for claim in _list_claims(pod, container, accepts)
        if claim.device_id
    )
    return KubeletListing(tuple(claims), frozenset((pod.namespace, pod.name) for pod in response.pod_resources))


def _list_claims(
    pod: messages.PodResources, container: messages.ContainerResources, accepts: Accepts
) -> Iterator[Claim]:
    """The devices of the device plugins, and those of dynamic resource claims."""
    make = partial(Claim, pod.namespace, pod.name, container.name)
    for devices in container.devices:
        if accepts(devices.resource_name):
            for device_id in devices.device_ids:
                yield make(devices.resource_name, device_id)
    for dynamic in container.dynamic_resources:
        for device in dynamic.claim_resources:
            if accepts(device.driver_name):
                yield make(device.driver_name, _find_device_id(device), _dra_labels(dynamic, device))


def _find_device_id(device: messages.ClaimResource) -> str:
    """The uuid if the CDI name contains one, else the device name of the ResourceSlice.

    NVIDIA's driver (v25.3 to 2026) writes `k8s.gpu.nvidia.com/claim=<claim uid>-gpu-0`, earlier also `/device=gpu-0`,
    so in practice it is the name: `gpu-<minor>`, `gpu-<minor>-mig-<profile>-<profile id>-<start>`. The container
    toolkit writes a uuid (`nvidia.com/gpu=GPU-<uuid>`); that a DRA driver does so too is a guess. `gpu-vfio-<n>` is
    passed to a virtual machine and not visible to NVML, so it is skipped.
    """
    for cdi in device.cdi_devices:
        if match := _UUID_IN_CDI_NAME.search(cdi.name):
            return match[0]
    return "" if device.device_name.startswith("gpu-vfio-") else device.device_name


def _dra_labels(dynamic: messages.DynamicResource, device: messages.ClaimResource) -> tuple[tuple[str, str], ...]:
    labels = (
        ("dra_claim_name", dynamic.claim_name),
        ("dra_claim_namespace", dynamic.claim_namespace),
        ("dra_driver_name", device.driver_name),
        ("dra_pool_name", device.pool_name),
        ("dra_device_name", device.device_name),
    )
    return tuple(label for label in labels if label[1])


def accept_names(more: Iterable[str]) -> Accepts:
    """A predicate: whether a name is one of `RESOURCE_NAMES` or of `more`."""
    wanted = {name.strip() for name in (*RESOURCE_NAMES, *more)} - {""}
    prefixes = tuple(name.removesuffix("*") for name in wanted if name.endswith("*"))
    return lambda name: name in wanted or name.startswith(prefixes)


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
        self._last: tuple[bytes, KubeletListing] | None = None  # the last response
        self._hang = ""  # the reason, if the last query timed out
        self._lock = threading.Lock()
        self._connection: GrpcConnection | None = None
        self._is_closed = False

    def read(self) -> KubeletListing:
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
                message = self._query()
                if self._last is None or self._last[0] != message:  # most are the same, and decoding costs most
                    self._last = message, decode_listing(decode(message, ListPodResourcesResponse), self.accepts)
            except TimeoutError as error:
                self._hang = self._explain(error)
                self._backoff = min(max(2 * self._backoff, FIRST_BACKOFF_SECONDS), MAX_BACKOFF_SECONDS)
                self._retry_at = self._clock() + self._backoff
                raise SourceError(self._hang) from error
            except (OSError, ValueError, GrpcProtocolError, MessageTooLargeError, GrpcStatusError) as error:
                self._hang = ""
                raise SourceError(self._explain(error)) from error
            self._hang, self._backoff = "", 0.0
            return self._last[1]

    def close(self) -> None:
        """Close the connection permanently."""
        with self._lock:
            self._is_closed = True
            self._disconnect()

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
        case GrpcStatusError(status=status) if status == UNIMPLEMENTED:
            return "does not support pod-resources v1: Kubernetes 1.20 or newer is required"
        case GrpcStatusError():
            return f"returned an error: {error}"
        case MessageTooLargeError():
            return f"returned {error}, more than the limit of {MESSAGE_LIMIT_BYTES >> 20} MiB"
        case DecodeError():
            return f"returned a response that is not pod-resources v1: {error}"
        case GrpcProtocolError():
            return f"returned an invalid response, this is not a gRPC server: {error}"
        case _:
            return f"cannot be reached: {error}"


CLAIMS_VALID_SECONDS = 60.0
"""How long the last response of the kubelet stays valid while it does not respond; a kubelet restart takes less."""

CLAIMS_REFRESH_SECONDS = 30.0
"""How often the kubelet is queried while no pod of the node changes: devices are assigned only when a pod starts."""

UNLISTED_SECONDS = 300.0
"""How long running pods keep their claims while the kubelet responds without them. With the API server away, 67 s were
seen. Meanwhile the kubelet assigns no device to other pods, because it does not know them either. Where no API server
is configured, the kubelet's word counts after that time: it does list no pod."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """The claims of a pod in the last response that named it."""

    uid: str  # empty: not known then
    claims: tuple[Claim, ...]


class ClaimCache:
    """The claims that are valid now."""

    def __init__(self, node: str, *, has_pod_watch: bool) -> None:
        """`has_pod_watch`: whether the pods of the node will be known, sooner or later."""
        self.claims: tuple[Claim, ...] = ()
        self.kept: tuple[Claim, ...] = ()  # those of `claims` that the last response lacks
        self.unlisted: frozenset[PodName] = frozenset()  # pods of earlier responses that the last one lacks
        self.is_accepted = True  # the last response
        self._node = node
        self._has_pod_watch = has_pod_watch
        self._entries: dict[PodName, _Entry] = {}
        self._missing_since: dict[PodName, float] = {}
        self._accepted_at = -UNLISTED_SECONDS
        self._unproven_since: float | None = None  # no response since then proves that the kubelet knows its pods
        self._pods: Mapping[str, Pod] | None = None  # known at the last query

    def is_current(self, pods: Mapping[str, Pod] | None, now: float) -> bool:
        """Whether the kubelet need not be queried: its last response was complete and no pod has changed since."""
        is_recent = 0 <= now - self._accepted_at < CLAIMS_REFRESH_SECONDS
        return bool(pods) and pods is self._pods and is_recent and self.is_accepted and not self.unlisted

    def is_known(self, now: float) -> bool:
        """Whether a response was accepted recently enough."""
        return now - self._accepted_at <= (CLAIMS_VALID_SECONDS if self.is_accepted else UNLISTED_SECONDS)

    def forget_if_outdated(self, now: float) -> None:
        """To be called when the kubelet does not respond."""
        if not self.is_known(now):
            self.claims = self.kept = ()
            self._entries.clear()

    def update(self, listing: KubeletListing, pods: Mapping[str, Pod] | None, *, now: float) -> None:
        """Take a response of the kubelet. `pods`: None if the pods of the node are unknown."""
        expected = self._expect_pods(pods)
        missing = expected.keys() - listing.pods
        self._missing_since = {name: min(self._missing_since.get(name, now), now) for name in missing}
        self.unlisted = frozenset(name for name, at in self._missing_since.items() if now - at <= UNLISTED_SECONDS)
        self.is_accepted = self._accept(listing, pods, now)
        if self.is_accepted:
            self._accepted_at = now
        kept = {  # of unlisted pods, unless a new pod of the same name has replaced the pod
            name: entry
            for name, entry in self._entries.items()
            if name in self.unlisted and entry.uid in ("", expected[name])
        }
        taken = {(claim.resource, claim.device_id) for claim in listing.claims}
        self.kept = tuple(
            claim for entry in kept.values() for claim in entry.claims if (claim.resource, claim.device_id) not in taken
        )
        self.claims = (*listing.claims, *self.kept)
        uids = {(pod.namespace, pod.name): pod.uid for pod in (pods or {}).values()}
        listed: dict[PodName, list[Claim]] = {}
        for claim in listing.claims:
            listed.setdefault((claim.namespace, claim.pod), []).append(claim)
        self._entries = kept | {
            name: _Entry(uids.get(name, ""), tuple(listed.get(name, ()))) for name in (*listed, *listing.pods)
        }
        self._pods = pods

    def _expect_pods(self, pods: Mapping[str, Pod] | None) -> dict[PodName, str]:
        """Pods that were listed before and have not ended since, as far as that is known, with their uid."""
        if pods is None:
            return {name: entry.uid for name, entry in self._entries.items() if not self._is_static(name)}
        return {
            (pod.namespace, pod.name): pod.uid
            for pod in pods.values()
            if (pod.namespace, pod.name) in self._entries and not pod.static_uid and not pod.is_finished
        }

    def _accept(self, listing: KubeletListing, pods: Mapping[str, Pod] | None, now: float) -> bool:
        """Whether the kubelet knows its pods: proven by the pods it lists, or believed after the time limit."""
        names = {name for name in listing.pods if not self._is_static(name)}
        if pods is None:
            self.unlisted = frozenset() if names else self.unlisted  # a pod less has ended
            is_proven, is_credible = bool(names), not self._has_pod_watch
        else:
            # Those that the kubelet lists as soon as it has read them from the API server.
            running = {(p.namespace, p.name) for p in pods.values() if p.phase == "Running" and not p.static_uid}
            is_proven, is_credible = not running or bool(running & listing.pods), bool(names)
        if is_proven:
            self._unproven_since = None
            return True
        self._unproven_since = now if self._unproven_since is None else min(self._unproven_since, now)
        return is_credible and now - self._unproven_since > UNLISTED_SECONDS

    def _is_static(self, name: PodName) -> bool:
        """The kubelet names a static pod after its node."""
        return name[1].endswith(f"-{self._node}")
