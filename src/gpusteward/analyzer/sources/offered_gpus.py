"""Whether any node of the cluster offers GPUs, from the API server: asked only while no exporter reports one.

Without an answer nothing is said: a cluster without GPU nodes looks like one whose exporters have disappeared.
"""

import time
from collections.abc import Callable, Mapping
from urllib.parse import urlencode

import msgspec

from gpusteward.core.errors import SourceError
from gpusteward.kubernetes.api import ApiServer, ObjectError
from gpusteward.messages.errors import kubernetes_errors

LISTED = (("", "nodes"), ("resource.k8s.io", "resourceslices"))
"""Group and resource of what is listed; `deploy/chart/generate.py` makes the rights from it."""
PAGE_SIZE = 100
"""A node takes about 20 KB: names of images and of volumes."""
MAX_PAGES = 200
CACHE_SECONDS = 60.0
_LABELS = ("nvidia.com/gpu.present", "cloud.google.com/gke-accelerator", "k8s.amazonaws.com/accelerator")
_WORDS = ("gpu", "cuda", "nvidia.com/mig-")
"""In names of resources: nvidia.com/gpu.shared, volcano.sh/vgpu-number, aliyun.com/gpu-mem, tencent.com/vcuda-core."""
_SLICES = ("/apis/resource.k8s.io/v1/resourceslices", "/apis/resource.k8s.io/v1beta1/resourceslices")


class _Metadata(msgspec.Struct):
    name: str = ""
    labels: dict[str, str] | None = None


class _NodeStatus(msgspec.Struct):
    capacity: dict[str, str] | None = None


class _Node(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)


class _ListMetadata(msgspec.Struct, rename="camel"):
    continue_: str | None = msgspec.field(default=None, name="continue")


class _Nodes(msgspec.Struct):
    items: list[_Node] = []
    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)


class _SliceSpec(msgspec.Struct, rename="camel"):
    driver: str = ""
    node_name: str = ""


class _Slice(msgspec.Struct):
    spec: _SliceSpec = msgspec.field(default_factory=_SliceSpec)


class _Slices(msgspec.Struct):
    items: list[_Slice] = []
    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)


class OfferedGpus:
    """Reads the nodes of one cluster. The result is kept for a minute."""

    def __init__(self, api: ApiServer, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._found = ""
        self._valid_until = float("-inf")

    def find_node(self) -> str:
        """A node that offers GPUs; empty: there is none. Raises SourceError if that cannot be known."""
        if self._clock() >= self._valid_until:
            self._found = self._search_nodes() or self._search_slices()
            self._valid_until = self._clock() + CACHE_SECONDS
        return self._found

    def _search_nodes(self) -> str:
        token: str | None = ""
        for _ in range(MAX_PAGES):
            page = self._api.read_json(_page_path("/api/v1/nodes", token or ""), _Nodes)
            for node in page.items:
                if offers_gpus(node.status.capacity or {}, node.metadata.labels or {}):
                    return node.metadata.name
            token = page.metadata.continue_
            if not token:
                return ""
        raise SourceError(kubernetes_errors.TOO_MANY_NODES, count=MAX_PAGES * PAGE_SIZE)

    def _search_slices(self) -> str:
        """With dynamic resource allocation the capacity of a node does not have its GPUs."""
        for path in _SLICES:
            try:
                return self._search_version(path)
            except ObjectError as error:
                if error.http_status != 404:  # 404: the cluster does not have this version
                    raise
        return ""

    def _search_version(self, path: str) -> str:
        token: str | None = ""
        for _ in range(MAX_PAGES):
            page = self._api.read_json(_page_path(path, token or ""), _Slices)
            found = (one.spec for one in page.items if "gpu" in one.spec.driver.lower())
            if spec := next(found, None):
                return spec.node_name or spec.driver
            token = page.metadata.continue_
            if not token:
                return ""
        raise SourceError(kubernetes_errors.TOO_MANY_NODES, count=MAX_PAGES * PAGE_SIZE)


def offers_gpus(capacity: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """By its resources, or by labels of discovery and of clouds, which stay while a device plugin is not running."""
    if any(labels.get(name, "") not in ("", "false") for name in _LABELS):
        return True
    return any(
        amount != "0" and "/" in name and any(word in name.lower() for word in _WORDS)
        for name, amount in capacity.items()
    )


def _page_path(path: str, token: str) -> str:
    return f"{path}?{urlencode({'limit': PAGE_SIZE, **({'continue': token} if token else {})})}"
