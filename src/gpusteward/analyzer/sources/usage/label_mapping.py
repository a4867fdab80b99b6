"""Which label holds what: sites, exporters and their versions use several names for the same thing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from gpusteward.analyzer.sources.usage.row_index import DeviceKey, HolderDetails, HolderKey


@dataclass(frozen=True, slots=True)
class LabelMapping:
    """The label names of one metric family; empty where it has no such label."""

    uuid: str = ""
    instance: str = ""  # MIG instance id
    namespace: str = ""
    pod: str = ""
    container: str = ""
    node: str = ""
    gpu: str = ""
    model: str = ""
    job: str = ""

    @property
    def holder(self) -> HolderKey:
        """The label of each part of a holder's key."""
        return HolderKey(self.uuid, self.instance, self.namespace, self.pod, self.container)

    @property
    def device(self) -> DeviceKey:
        """The label of each part of a device's key."""
        return DeviceKey(self.uuid, self.instance)

    @property
    def details(self) -> HolderDetails:
        """The label of each detail that every exporter may report."""
        return HolderDetails(self.node, self.gpu, self.model, self.job)


CANDIDATES: Mapping[str, tuple[str, ...]] = {
    "uuid": ("UUID", "uuid", "device_uuid", "deviceuuid"),
    "instance": ("GPU_I_ID", "gpu_instance_id"),
    # Prometheus renames labels that collide with those of the scraped target (`exported_pod`), unless the job has
    # `honor_labels`. Where both exist, the plain name is the exporter's own pod. The names of dcgm-exporter 1.x and
    # HAMi never collide.
    "namespace": ("exported_namespace", "pod_namespace", "podnamespace", "namespace"),
    "pod": ("exported_pod", "pod_name", "podname", "pod"),
    "container": ("exported_container", "container_name", "ctrname", "container"),
    "node": ("Hostname", "hostname", "exported_node", "node", "nodeid", "nodename", "kubernetes_node", "instance"),
    "gpu": ("gpu", "device_index", "deviceidx"),
    "model": ("modelName", "model", "device_type", "devicetype"),
    "job": ("job",),
}
"""The possible label names of each field of `LabelMapping`, preferred ones first."""


def map_labels(labels: Iterable[str]) -> LabelMapping:
    """The mapping for a metric family that has these labels."""
    existing = set(labels)
    found = {field: next((name for name in names if name in existing), "") for field, names in CANDIDATES.items()}
    return LabelMapping(**{field.name: found[field.name] for field in fields(LabelMapping)})
