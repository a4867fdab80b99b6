"""Labels of the dcgm dialect in dcgm-exporter's order: device, labels of the field list and the pod, holder."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from gpusteward.agent.dialects.dcgm_options import DcgmOptions
from gpusteward.agent.fields.field_list import LabelRow
from gpusteward.core.allocations import Allocation
from gpusteward.core.exposition import Labels
from gpusteward.core.gpus import Gpu

HEAD = ("gpu", "UUID", "pci_bus_id", "device", "modelName", "GPU_I_PROFILE", "GPU_I_ID", "GPU_CI_ID")
HOLDER = ("container", "namespace", "pod", "pod_uid", "vgpu")
OLD = ("uuid", "container_name", "pod_namespace", "pod_name")
HPC_JOB = "hpc_job"
XID_ERROR = ("err_code", "err_msg")
EVENT = ("window_size_in_ms", "xid", "clock_event", "peer_gpu", "link_status")
RESERVED = frozenset((*HEAD, *HOLDER, *OLD, *EVENT, "Hostname", "hostname"))
"""Pod labels must not use these names, nor names that begin with `dra_`."""


_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_]")


class EntityLabels(NamedTuple):
    """The labels of a device, of a MIG instance, or of one holder's sample of it."""

    head: Labels
    middle: Labels  # sorted: labels of the field list and of the pod
    tail: Labels  # sorted: labels of the holder

    def all(self) -> Labels:
        return self.head + self.middle + self.tail

    def with_holder(self, *more: tuple[str, str]) -> "EntityLabels":
        """With these labels among those of the holder."""
        return self._replace(tail=tuple(sorted((*self.tail, *more))))

    def with_event(self, event: Labels) -> Labels:
        """All labels, with the event's labels where dcgm-exporter puts them."""
        return self.head + tuple(sorted(self.middle + event)) + self.tail


class LabelBuilder:
    """Builds the labels of a device according to the options and the label rows of the field list."""

    def __init__(self, options: DcgmOptions, rows: tuple[LabelRow, ...]) -> None:
        self._options = options
        self._rows = sorted((name, row.field.fact) for row in rows for name in _exported_names(row, options.names))
        self._taken = RESERVED.union((name for name, _ in self._rows), _optional_names(options))
        self._host = _host_labels(options)

    def label(self, gpu: Gpu, *, holder: Allocation | None, with_compute_instance: bool) -> EntityLabels:
        middle = [(name, text) for name, fact in self._rows if (text := _read_fact(gpu, fact))]
        if holder is None:
            return EntityLabels(self._head(gpu, with_compute_instance), tuple(middle), ())
        if self._options.pod_labels and holder.container.pod_labels:
            middle += name_pod_labels(holder.container.pod_labels, self._taken)
            middle.sort()
        return EntityLabels(self._head(gpu, with_compute_instance), tuple(middle), self._tail(holder))

    def _head(self, gpu: Gpu, with_compute_instance: bool) -> Labels:
        model = "-".join(gpu.model.split()) if self._options.replace_blanks else gpu.model
        head = [("gpu", str(gpu.index)), ("uuid" if self._options.old_labels else "UUID", gpu.device_uuid)]
        if gpu.pci_bus_id:
            head.append(("pci_bus_id", gpu.pci_bus_id))
        head += [("device", f"nvidia{gpu.index}"), ("modelName", model)]
        if gpu.mig:
            head += [("GPU_I_PROFILE", gpu.mig.profile), ("GPU_I_ID", str(gpu.mig.gpu_instance_id))]
        if gpu.mig and with_compute_instance:
            head.append(("GPU_CI_ID", str(gpu.mig.compute_instance_id)))
        return (*head, *self._host)

    def _tail(self, holder: Allocation) -> Labels:
        names = ("container_name", "pod_namespace", "pod_name") if self._options.old_labels else HOLDER[:3]
        container = holder.container
        tail = dict(holder.claim) | dict(zip(names, (container.name, container.namespace, container.pod), strict=True))
        if self._options.pod_uid:
            tail["pod_uid"] = container.pod_uid
        if self._options.device_per_pod:
            tail["vgpu"] = holder.replica
        return tuple(sorted(pair for pair in tail.items() if pair[1]))


@lru_cache(maxsize=256)
def name_pod_labels(labels: Labels, taken: frozenset[str]) -> Labels:
    """Pod labels under valid Prometheus names; conflicting names get a prefix, then a number.

    Empty values are omitted, because for Prometheus an empty label does not exist. Pods repeat every cycle, so results
    are cached, for more pods than a node can run.
    """
    used = set(taken)
    named: list[tuple[str, str]] = []
    for key, value in sorted(pair for pair in labels if pair[1]):
        name = _name_pod_label(key, used)
        used.add(name)
        named.append((name, value))
    return tuple(named)


def _name_pod_label(key: str, used: set[str]) -> str:
    name = _NOT_IN_A_NAME.sub("_", key)
    if name[:1].isdigit():
        name = f"_{name}"
    if name not in used and not name.startswith(("dra_", "__")):  # Prometheus reserves names with two underscores
        return name
    name = prefixed = f"pod_label_{name}"
    number = 2
    while name in used:
        name, number = f"{prefixed}_{number}", number + 1
    return name


def _exported_names(row: LabelRow, names: str) -> set[str]:
    """A classic name follows the option; any other name is exported as written."""
    if row.name != row.field.name or names == "classic":
        return {row.name}
    renamed = row.field.v49_name or row.name
    return {renamed} if names == "v4.9" else {row.name, renamed}


def _optional_names(options: DcgmOptions) -> tuple[str, ...]:
    """Label names that are in use only with these options."""
    return (*(XID_ERROR if options.xid_error_labels else ()), *((HPC_JOB,) if options.hpc_jobs else ()))


def _host_labels(options: DcgmOptions) -> Labels:
    names = ("Hostname", "hostname") if options.hostname_label == "both" else (options.hostname_label,)
    return tuple((name, options.hostname) for name in names) if options.hostname else ()


_OWN: Mapping[str, Callable[[Gpu], str]] = {
    "model": lambda gpu: gpu.model,
    "index": lambda gpu: str(gpu.index),
    "device_uuid": lambda gpu: gpu.device_uuid,
    "minor": lambda gpu: "" if gpu.minor is None else str(gpu.minor),
    "pci_bus_id": lambda gpu: gpu.pci_bus_id,
}


def _read_fact(gpu: Gpu, fact: str) -> str:
    own = _OWN.get(fact)
    return own(gpu) if own else gpu.facts.get(fact, "")
