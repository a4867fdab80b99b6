"""Decodes pods from the API server's JSON and keeps the fields the agent needs, a tenth of the text or less (pure).

What many pods have in common is one object: a node may have thousands of them.

The kubelet assigns all devices of a pod at once: an init container that ends before the main containers start passes
its devices on to them. What it has more than they request stays assigned for the life of the pod, and pod-resources
does not list it, because it omits init containers that end: `InitDevices`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from sys import intern
from types import MappingProxyType

import msgspec

from gpusteward.core.errors import ConfigurationError
from gpusteward.core.node.containers import Container, Workload, find_user
from gpusteward.kubernetes.api import parse_time
from gpusteward.kubernetes.owners import PAIR_LABEL, Reference, find_workload

_COUNT = re.compile("[0-9]{1,9}")


class _NamedClaim(msgspec.Struct):
    name: str = ""


class _ResourceSpec(msgspec.Struct):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None
    claims: list[_NamedClaim] | None = None


class ContainerSpec(msgspec.Struct, rename="camel"):
    """The part of a container's spec that is needed."""

    name: str = ""
    restart_policy: str | None = None
    resources: _ResourceSpec | None = None

    @property
    def is_sidecar(self) -> bool:
        """Of an init container: whether it runs beside the main containers."""
        return self.restart_policy == "Always"

    def count_devices(self) -> dict[str, int]:
        """Requested devices by resource name. Other resources have no slash in their name, or a unit."""
        resources = self.resources or _ResourceSpec()
        amounts = {**(resources.limits or {}), **(resources.requests or {})}
        return {name: int(text) for name, text in amounts.items() if "/" in name and _COUNT.fullmatch(str(text))}

    def claim_names(self) -> set[str]:
        return {claim.name for claim in (self.resources and self.resources.claims) or ()}


@dataclass(frozen=True, slots=True)
class InitDevices:
    """What the init containers of a pod hold without being listed."""

    containers: frozenset[str]  # the init containers that request devices and end
    counts: Mapping[str, int] = field(default_factory=dict)  # resource -> devices
    claims: int = 0  # dynamic resource claims, each of an unknown number of devices, usually one


def find_init_devices(init: Sequence[ContainerSpec], main: Sequence[ContainerSpec]) -> InitDevices | None:
    """The unlisted devices of a pod with these containers; None if all are listed."""
    listed = [*main, *(each for each in init if each.is_sidecar)]
    ending = [each for each in init if not each.is_sidecar]
    counts = {}
    for resource in {name for each in ending for name in each.count_devices()}:
        count = _find_peak(init, resource) - sum(each.count_devices().get(resource, 0) for each in listed)
        if count > 0:
            counts[resource] = count
    claims = {name for each in ending for name in each.claim_names()}
    unlisted_claims = len(claims.difference(*(each.claim_names() for each in listed)))
    holders = frozenset(each.name for each in ending if each.count_devices() or each.claim_names())
    return InitDevices(holders, counts, unlisted_claims) if counts or unlisted_claims else None


def _find_peak(init: Iterable[ContainerSpec], resource: str) -> int:
    """The most devices of an init container that ends, with the sidecars that were started before it."""
    peak = sidecars = 0
    for each in init:
        count = each.count_devices().get(resource, 0)
        if each.is_sidecar:
            sidecars += count
        else:
            peak = max(peak, sidecars + count)
    return peak


PAIR_GPUS_ANNOTATION = "dual-pods.llm-d.ai/accelerators"
"""On both pods of a pair: the UUIDs of its GPUs, separated by commas."""
KEPT_ANNOTATIONS = (
    "hami.io/",
    "volcano.sh/",
    "gpu-fraction",
    "gpu-memory",
    "runai",
    "run.ai/",
    "kai.scheduler/",
    "gpusteward.io/",
    PAIR_GPUS_ANNOTATION,
)
"""Prefixes of GPU-related annotations; all others are dropped."""
LONGEST_TEXT = 16 * 1024
"""Characters. Grants of HAMi to a pod on many GPUs take thousands; a longer annotation is ignored."""
KEPT_LABELS = ("runai-gpu-group", PAIR_LABEL)
"""Prefixes of labels about GPU sharing. Owners are resolved before the other labels are dropped."""
STATIC_POD_UID = "kubernetes.io/config.hash"
"""The cgroups of a static pod contain this value instead of the uid of its mirror pod in the API server."""

PodName = tuple[str, str]  # namespace, name
_NO_TEXTS: Mapping[str, str] = MappingProxyType({})
_NO_NAMES: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod of this node."""

    namespace: str
    name: str
    uid: str
    phase: str = ""
    workload: Workload | None = None
    started_at: float | None = None  # unix seconds
    labels: Mapping[str, str] = field(default_factory=dict)  # those of `KEPT_LABELS`
    exported_labels: tuple[tuple[str, str], ...] = ()  # exported as metric labels, by the allowlist
    user: str = ""  # from the first of `USER_LABELS`
    annotations: Mapping[str, str] = field(default_factory=dict)
    containers: Mapping[str, str] = field(default_factory=dict)  # container id without runtime prefix -> name
    container_names: tuple[str, ...] = ()  # in the order of the spec
    init_container_names: tuple[str, ...] = ()
    finished_init_containers: frozenset[str] = frozenset()
    static_uid: str = ""
    init_devices: InitDevices | None = None  # devices that the kubelet does not list

    @property
    def is_finished(self) -> bool:
        """Whether it has ended. The kubelet may list its devices for another half hour."""
        return self.phase in ("Succeeded", "Failed")

    def container(self, name: str) -> Container:
        """The container of this name, as used in the snapshot."""
        return Container(
            self.namespace,
            self.name,
            self.uid,
            name,
            workload=self.workload,
            pod_labels=self.exported_labels,
            started_at=self.started_at,
            user=self.user,
        )


class _PodMetadata(msgspec.Struct, rename="camel"):
    name: str
    namespace: str
    uid: str
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Reference] | None = None


class _PodSpec(msgspec.Struct, rename="camel"):
    containers: list[ContainerSpec] | None = None
    init_containers: list[ContainerSpec] | None = None


class _State(msgspec.Struct):
    terminated: dict[str, object] | None = None  # only its presence matters


class _ContainerStatus(msgspec.Struct):
    name: str = ""
    id: str = msgspec.field(default="", name="containerID")
    state: _State | None = None


class _PodStatus(msgspec.Struct, rename="camel"):
    phase: str = ""
    start_time: str | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None
    ephemeral_container_statuses: list[_ContainerStatus] | None = None


class _Record(msgspec.Struct):
    metadata: _PodMetadata
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class PodDecoder:
    """Decodes pods, keeping the labels to export."""

    def __init__(self, label_patterns: Sequence[str] = ()) -> None:
        """`label_patterns`: regular expressions; matching labels are exported. Raises ConfigurationError."""
        try:
            self._wanted = [re.compile(pattern) for pattern in label_patterns]
        except re.error as error:
            raise ConfigurationError(
                f"pod label pattern {error.pattern!r} is not a regular expression: {error}"
            ) from error
        self._decoder = msgspec.json.Decoder(_Record)

    def read(self, text: bytes | msgspec.Raw) -> Pod:
        """Decode one pod. Raises msgspec.MsgspecError, UnicodeDecodeError or RecursionError if it is invalid."""
        record = self._decoder.decode(text)
        about, status = record.metadata, record.status
        labels, annotations = about.labels or {}, about.annotations or {}
        namespace = intern(about.namespace)
        kinds = (status.container_statuses, status.init_container_statuses, status.ephemeral_container_statuses)
        started = [each for kind in kinds for each in kind or ()]
        return Pod(
            namespace,
            about.name,
            about.uid,
            phase=intern(status.phase),
            workload=find_workload(namespace, about.name, owners=about.owner_references or (), labels=labels),
            started_at=parse_time(status.start_time),
            labels=_keep(labels, KEPT_LABELS),
            exported_labels=tuple(
                (name, labels[name]) for name in sorted(labels) if any(each.search(name) for each in self._wanted)
            ),
            user=find_user(labels),
            annotations=_keep(annotations, KEPT_ANNOTATIONS),
            # Of all that have started, without the prefix of their ids: `containerd://<id>` -> `<id>`.
            containers={each.id.rpartition("://")[2]: intern(each.name) for each in started if each.id},
            container_names=_names(record.spec.containers),
            init_container_names=_names(record.spec.init_containers),
            finished_init_containers=_finished(status.init_container_statuses),
            static_uid=annotations.get(STATIC_POD_UID, ""),
            init_devices=find_init_devices(record.spec.init_containers or (), record.spec.containers or ()),
        )


def _keep(texts: Mapping[str, str], prefixes: tuple[str, ...]) -> Mapping[str, str]:
    return {
        name: text for name, text in texts.items() if name.startswith(prefixes) and len(text) <= LONGEST_TEXT
    } or _NO_TEXTS


def _names(containers: Sequence[ContainerSpec] | None) -> tuple[str, ...]:
    return tuple(intern(container.name) for container in containers or ())


def _finished(statuses: Sequence[_ContainerStatus] | None) -> frozenset[str]:
    names = frozenset(each.name for each in statuses or () if each.state and each.state.terminated is not None)
    return names or _NO_NAMES
