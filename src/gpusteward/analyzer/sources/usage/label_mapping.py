"""Which label holds what: sites, exporters and their versions use several names for the same thing."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from gpusteward.analyzer.sources.usage.query_results import DeviceKey, HolderDetails, HolderKey, PodLabelNames
from gpusteward.analyzer.sources.usage.selectors import Matcher, Matchers, match_any
from gpusteward.core.node.containers import normalize_label


@dataclass(frozen=True, slots=True)
class LabelMapping:
    """The label names of one metric family; empty where it has no such label."""

    uuid: str = ""  # several labels, joined by commas, where none has the UUID: those of node and index
    instance: str = ""  # MIG instance id
    namespace: str = ""
    pod: str = ""
    container: str = ""
    node: str = ""
    gpu: str = ""
    model: str = ""
    job: str = ""
    cluster: str = ""
    pod_labels: str = ""  # the labels of pods that are read: `PodLabelNames`

    @property
    def lacks_uuid(self) -> bool:
        """Whether GPUs are identified by other labels: relabeling has dropped that of the UUID."""
        return "," in self.uuid

    @property
    def holder(self) -> HolderKey:
        """The label of each part of a holder's key."""
        return HolderKey(self.uuid, self.instance, self.namespace, self.pod, self.container, self.cluster)

    @property
    def device(self) -> DeviceKey:
        """The label of each part of a device's key."""
        return DeviceKey(self.uuid, self.instance, self.cluster)

    @property
    def details(self) -> HolderDetails:
        """The label of each detail that every exporter may report."""
        return HolderDetails(self.node, self.gpu, self.model, self.job, pod_labels=self.pod_labels)


CANDIDATES: Mapping[str, tuple[str, ...]] = {
    "uuid": ("UUID", "uuid", "device_uuid", "deviceuuid"),
    "instance": ("GPU_I_ID", "gpu_instance_id"),
    # Prometheus renames labels that collide with those of the scraped target (`exported_pod`), unless the job has
    # `honor_labels`. Where both exist, the plain name is the exporter's own pod. The names of dcgm-exporter 1.x and
    # HAMi never collide.
    "namespace": (
        *("exported_namespace", "pod_namespace", "podnamespace", "NamespaceName", "PodNamespace", "job_pod_namespace"),
        *("job_namespace", "namespace"),
    ),
    "pod": ("exported_pod", "pod_name", "podname", "PodName", "job_pod_name", "pod"),
    "container": (
        *("exported_container", "container_name", "ctrname", "ContainerName", "job_container_name", "container"),
    ),
    "node": (
        *("Hostname", "hostname", "exported_node", "node", "nodeid", "nodename", "NodeName", "kubernetes_node"),
        *("k8s_node_name", "instance"),
    ),
    "gpu": ("gpu", "device_index", "deviceidx"),
    "model": ("modelName", "model", "device_type", "devicetype"),
    "job": ("job",),
    "cluster": ("cluster", "k8s_cluster", "cluster_id", "k8s_cluster_name", "cluster_name", "ClusterName"),
}
"""The possible label names of each field of `LabelMapping`, preferred ones first."""
IDS_ON_NODE = ("pci_bus_id", "pciBusId", "PCI_BUS_ID", "device")
"""What identifies a GPU on its node where not even the index is left."""
HOLDER_NAMESPACES: Mapping[str, tuple[str, ...]] = {
    "exported_pod": ("exported_namespace",),
    "pod_name": ("pod_namespace",),
    "podname": ("podnamespace",),
    "PodName": ("NamespaceName", "PodNamespace"),
    "job_pod_name": ("job_pod_namespace", "job_namespace"),
    "pod": ("namespace",),
}
"""The label of the namespace that belongs to a label of the pod: both exist or none. Another one may be that of the
target."""
_EXPORTER_NAME = re.compile(r"(^|-)dcgm-exporter-[a-z0-9]{5}$")
MAPPED_LABELS = frozenset(name for names in CANDIDATES.values() for name in names)


def is_exporter_name(pod: str) -> bool:
    """Whether a pod is called as NVIDIA's chart and its GPU operator call those of dcgm-exporter."""
    return "dcgm-exporter-" in pod and _EXPORTER_NAME.search(pod) is not None


def map_labels(labels: Iterable[str], *, cluster_label: str = "", pod_labels: Collection[str] = ()) -> LabelMapping:
    """The mapping for a metric family that has these labels. `cluster_label`: the only possible name of that label.
    `pod_labels`: the labels of pods to read, by their names in Kubernetes."""
    existing = set(labels)
    candidates = {**CANDIDATES, "cluster": (cluster_label,)} if cluster_label else CANDIDATES
    found = {field: next((name for name in names if name in existing), "") for field, names in candidates.items()}
    if not found["uuid"] and found["node"]:
        on_node = found["gpu"] or next((name for name in IDS_ON_NODE if name in existing), "")
        found["uuid"] = f"{found['node']},{on_node}" if on_node else ""
    return LabelMapping(**found, pod_labels=PodLabelNames(",".join(_find_pod_labels(existing, pod_labels))))


def _find_pod_labels(labels: Iterable[str], wanted: Collection[str]) -> Iterator[str]:
    """One label for each that is wanted. Where Prometheus has renamed a label, the plain one is that of the exporter's
    own pod, as for `exported_pod`."""
    sought = set(map(normalize_label, wanted))
    found: dict[str, str] = {}
    for name in sorted(set(labels) - MAPPED_LABELS, key=lambda each: (not each.startswith("exported_"), each)):
        if (plain := normalize_label(name)) in sought:
            found.setdefault(plain, name)
    return iter(found.values())


@dataclass(frozen=True, slots=True)
class ClusterPart:
    """Series that name their cluster in the same label."""

    label: str  # empty: they name none
    matchers: Matchers = ()


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """Which clusters are read, and which label names them; and which labels of pods are read."""

    names: tuple[str, ...] = ()  # empty: all
    label: str = ""  # empty: one of the usual names
    pod_labels: tuple[str, ...] = ()  # by their names in Kubernetes

    def divide(self, labels: Collection[str]) -> Iterator[ClusterPart]:
        """The parts of a site whose series have these labels. A site may have several cluster labels: each cluster
        writes its own, and so each may use another name."""
        found = [name for name in ((self.label,) if self.label else CANDIDATES["cluster"]) if name in labels]
        if len(found) < 2 and not self.names:
            yield ClusterPart(found[0] if found else "")
            return
        for number, label in enumerate(found):
            chosen = match_any(label, self.names) if self.names else Matcher(label, "!=", "")
            yield ClusterPart(label, (chosen, *_absent(found[:number])))
        if not self.names:
            yield ClusterPart("", _absent(found))

    def includes(self, cluster: str) -> bool:
        return not self.names or cluster in self.names


ALL_CLUSTERS = ClusterChoice()


def _absent(labels: Iterable[str]) -> Matchers:
    return tuple(Matcher(label, "=", "") for label in labels)
