"""Which nodes of the cluster offer GPUs, from the API server.

A cluster without GPU nodes looks like one whose exporters have disappeared: `find_node` is asked while no exporter
reports a GPU, and without an answer nothing is said. `list_nodes` is compared with the nodes that report: one list in
five minutes. Of its objects only what is used is decoded; the server cannot leave the rest out.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar

import msgspec

from gpusteward.core.errors import SourceError
from gpusteward.kubernetes.api import ApiServer, ObjectError
from gpusteward.messages.errors import kubernetes_errors

T = TypeVar("T")

LISTED = (("", "nodes"), ("resource.k8s.io", "resourceslices"))
"""Group and resource of what is listed; `deploy/chart/generate.py` makes the rights from it."""
PAGE_SIZE = 250
"""A node takes about 20 KB: names of images and of volumes."""
MAX_ITEMS = 50_000
CACHE_SECONDS = 60.0
LIST_SECONDS = 300.0
"""How often the nodes are listed. Of a cluster of 5,000 nodes these are 20 requests with 90 MB in total; decoding them
takes 0.15 s of CPU (measured)."""
LIST_LIMIT_SECONDS = 20.0
"""Of one list: a slow API server must not delay the cycle."""
KEPT_SECONDS = 1200.0
"""A list is used for so long while no newer one can be read."""
_LABELS = ("nvidia.com/gpu.present", "cloud.google.com/gke-accelerator", "k8s.amazonaws.com/accelerator")
_WORDS = ("gpu", "cuda", "nvidia.com/mig-")
"""In names of resources: nvidia.com/gpu.shared, volcano.sh/vgpu-number, aliyun.com/gpu-mem, tencent.com/vcuda-core."""
_NVIDIA = ("nvidia.com/gpu", "nvidia.com/mig-", "volcano.sh/vgpu", "aliyun.com/gpu", "tencent.com/vcuda")
"""How names of resources begin that are GPUs of NVIDIA; exporters of other GPUs are not read."""
_GPU_COUNT, _GPU_REPLICAS = "nvidia.com/gpu.count", "nvidia.com/gpu.replicas"
_GPU_PRODUCT = "nvidia.com/gpu.product"
_UNMONITORED: Mapping[str, tuple[str, ...]] = {
    "nvidia.com/gpu.workload.config": ("vm-passthrough", "vm-vgpu"),  # the GPUs belong to virtual machines
    "nvidia.com/gpu.deploy.dcgm-exporter": ("false",),  # the GPU operator runs no exporter there, as its admin wants
    "nvidia.com/gpu.deploy.operands": ("false",),
    "type": ("virtual-kubelet",),
    "liqo.io/type": ("virtual-node",),  # the node of another cluster
}
"""Labels of nodes on which no exporter is expected."""
_NODES = "/api/v1/nodes"
_SLICES = ("/apis/resource.k8s.io/v1/resourceslices", "/apis/resource.k8s.io/v1beta1/resourceslices")


class _NodeMetadata(msgspec.Struct, rename="camel"):
    name: str = ""
    labels: dict[str, str] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None


class _NodeCondition(msgspec.Struct, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


class _NodeAddress(msgspec.Struct):
    address: str = ""


class _NodeStatus(msgspec.Struct):
    capacity: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None
    conditions: list[_NodeCondition] | None = None
    addresses: list[_NodeAddress] | None = None


class _ListedNode(msgspec.Struct):
    metadata: _NodeMetadata = msgspec.field(default_factory=_NodeMetadata)
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)


class _SliceSpec(msgspec.Struct, rename="camel"):
    driver: str = ""
    node_name: str = ""


class _Slice(msgspec.Struct):
    spec: _SliceSpec = msgspec.field(default_factory=_SliceSpec)


class OfferedNode(NamedTuple):
    """A node that offers GPUs of NVIDIA, and on which an exporter is expected."""

    name: str
    names: frozenset[str]  # its own and its addresses
    gpus: int  # an estimate where they are shared and no label counts them
    created_at: float  # unix seconds; 0: not known
    ready_at: float | None  # since when it is ready, unix seconds; None: it is not, or is being deleted
    counted: int = 0  # its GPUs by the label of GPU discovery; 0: not known, or the label counts MIG instances


class OfferedGpus:
    """Reads the nodes of one cluster. For the thread that runs cycles."""

    def __init__(self, api: ApiServer, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._found = ""
        self._valid_until = float("-inf")
        self._listed: Sequence[OfferedNode] = ()
        self._listed_at = float("-inf")

    def find_node(self) -> str:
        """A node that offers GPUs; empty: there is none. Kept for a minute. Raises SourceError if that cannot be
        known."""
        if self._clock() >= self._valid_until:
            found = (
                node.metadata.name
                for node in self._read_items(_NODES, _ListedNode)
                if offers_gpus(node.status.capacity or {}, node.metadata.labels or {})
            )
            self._found = next(found, "") or self._search_slices()
            self._valid_until = self._clock() + CACHE_SECONDS
        return self._found

    def list_nodes(self) -> Sequence[OfferedNode]:
        """All nodes that offer GPUs. Kept for five minutes, and longer while they cannot be read. Raises
        SourceError."""
        now = self._clock()
        if now - self._listed_at < LIST_SECONDS:
            return self._listed
        try:
            found = (_describe(node) for node in self._read_items(_NODES, _ListedNode, now + LIST_LIMIT_SECONDS))
            self._listed = [node for node in found if node is not None]
        except SourceError:
            if now - self._listed_at < KEPT_SECONDS:
                return self._listed
            raise
        self._listed_at = now
        return self._listed

    def _read_items(self, path: str, kind: type[T], until: float = float("inf")) -> Iterator[T]:
        """Page by page. Raises SourceError, also if it takes longer than `until`."""
        left = MAX_ITEMS
        for page in self._api.read_pages(path, kind, size=PAGE_SIZE):
            yield from page
            left -= max(len(page), 1)
            if left <= 0:
                raise SourceError(kubernetes_errors.TOO_MANY_NODES, count=MAX_ITEMS)
            if self._clock() > until:
                raise SourceError(kubernetes_errors.NODES_TOO_SLOW, seconds=LIST_LIMIT_SECONDS)

    def _search_slices(self) -> str:
        """With dynamic resource allocation the capacity of a node does not have its GPUs."""
        for path in _SLICES:
            try:
                specs = (one.spec for one in self._read_items(path, _Slice))
                spec = next((one for one in specs if "gpu" in one.driver.lower()), _SliceSpec())
            except ObjectError as error:
                if error.http_status != 404:  # 404: the cluster does not have this version
                    raise
            else:
                return spec.node_name or spec.driver
        return ""


def offers_gpus(capacity: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """By its resources, or by labels of discovery and of clouds, which stay while a device plugin is not running."""
    if any(labels.get(name, "") not in ("", "false") for name in _LABELS):
        return True
    return any(
        amount != "0" and "/" in name and any(word in name.lower() for word in _WORDS)
        for name, amount in capacity.items()
    )


def _describe(node: _ListedNode) -> OfferedNode | None:
    """None for a node without GPUs of NVIDIA, or without an exporter on purpose."""
    metadata, status, labels = node.metadata, node.status, node.metadata.labels or {}
    gpus = count_gpus([status.allocatable or {}, status.capacity or {}], labels)
    if not gpus or any(labels.get(name) in values for name, values in _UNMONITORED.items()):
        return None
    ready = [one.last_transition_time for one in status.conditions or () if (one.type, one.status) == ("Ready", "True")]
    is_ready = bool(ready) and metadata.deletion_timestamp is None
    return OfferedNode(
        metadata.name,
        frozenset({metadata.name, *(one.address for one in status.addresses or ())}),
        gpus,
        metadata.creation_timestamp.timestamp() if metadata.creation_timestamp else 0.0,
        (ready[0].timestamp() if ready[0] else 0.0) if is_ready else None,
        gpus if _counts_boards(status, labels) else 0,
    )


def _counts_boards(status: _NodeStatus, labels: Mapping[str, str]) -> bool:
    """Whether GPU discovery counts the GPUs of a node: with MIG its label may count instances."""
    has_mig = any(name.startswith("nvidia.com/mig-") for name in status.capacity or {})
    return labels.get(_GPU_COUNT, "").isdecimal() and not has_mig and "MIG" not in labels.get(_GPU_PRODUCT, "")


def count_gpus(resources: Sequence[Mapping[str, str]], labels: Mapping[str, str]) -> int:
    """GPUs of NVIDIA on a node, by the label of GPU discovery or by its resources. MIG instances and shares of other
    device plugins do not say how many GPUs they are: then it is one."""
    offered = {
        name: int(amount)
        for of_node in resources
        for name, amount in of_node.items()
        if name.startswith(_NVIDIA) and amount.isdecimal() and amount != "0"
    }
    has_label = labels.get("nvidia.com/gpu.present") == "true"  # also with dynamic resource allocation
    if not offered and not has_label:
        return 0
    counted = labels.get(_GPU_COUNT, "")
    if counted.isdecimal():
        return int(counted)
    replicas = labels.get(_GPU_REPLICAS, "")
    shares = offered.get("nvidia.com/gpu", 0) + offered.get("nvidia.com/gpu.shared", 0)
    return max(1, shares // max(1, int(replicas) if replicas.isdecimal() else 1))
