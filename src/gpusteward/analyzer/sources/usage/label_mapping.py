"""Which label says what: sites, exporters and their versions have several names for the same thing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Spelling:
    """The label names of one family of series; empty where it has no such label."""

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
    def holder(self) -> tuple[str, ...]:
        """What identifies an allocation."""
        return (self.uuid, self.instance, self.namespace, self.pod, self.container)

    @property
    def device(self) -> tuple[str, ...]:
        """What identifies a device or MIG instance."""
        return (self.uuid, self.instance)


CANDIDATES: Mapping[str, tuple[str, ...]] = {
    "uuid": ("UUID", "uuid", "device_uuid", "deviceuuid"),
    "instance": ("GPU_I_ID", "gpu_instance_id"),
    # Prometheus renames what collides with its own labels of the scraped pod, unless it honours them: where both are
    # there, the plain name is the exporter's own pod. The names of dcgm-exporter 1.x and HAMi never collide.
    "namespace": ("exported_namespace", "pod_namespace", "podnamespace", "namespace"),
    "pod": ("exported_pod", "pod_name", "podname", "pod"),
    "container": ("exported_container", "container_name", "ctrname", "container"),
    "node": ("Hostname", "hostname", "exported_node", "node", "nodeid", "nodename", "kubernetes_node", "instance"),
    "gpu": ("gpu", "device_index", "deviceidx"),
    "model": ("modelName", "model", "device_type", "devicetype"),
    "job": ("job",),
}
"""By what a label says, its names in the order of trust."""


def find_spelling(labels: Iterable[str]) -> Spelling:
    """The spelling of a family that has these labels."""
    there = set(labels)
    found = {role: next((name for name in names if name in there), "") for role, names in CANDIDATES.items()}
    return Spelling(**{field.name: found[field.name] for field in fields(Spelling)})
