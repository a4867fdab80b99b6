"""A session of DCGM: an open connection to a hostengine, the GPUs it knows, and the fields that are watched."""

import ctypes
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from gpusteward.agent.dcgm.library import (
    ENTITY_GPU,
    ENTITY_GPU_INSTANCE,
    FIELD_UUID,
    GROUP_EMPTY,
    LIVE_DATA,
    LOST,
    MAX_GPUS,
    OPERATION_MODE_AUTO,
    TYPE_DOUBLE,
    TYPE_INTEGER,
    UNSUPPORTED,
    ConnectParameters,
    DcgmError,
    EntityPair,
    FieldValue,
    Library,
    MetricGroups,
    MigHierarchy,
    VersionInfo,
    with_version,
)
from gpusteward.agent.settings.values import Hostengine
from gpusteward.core.dcgm import FIELDS
from gpusteward.core.node.signals import PROFILING
from gpusteward.core.node.snapshots import Failure
from gpusteward.logs import Log
from gpusteward.messages.errors import dcgm_errors as messages

log = Log(__name__)

CONNECT_MILLISECONDS = 3000
SHARED_SECONDS = 30.0
"""How often a hostengine that others may use is asked to measure, as dcgm-exporter does. It measures for the fastest of
its clients, and averages over the time between two measurements: a faster watch would shorten what dcgm-exporter's
values cover, and work in between would be missing there."""
KEEP_INTERVALS = 3
"""How long the hostengine keeps the samples; only the latest is read."""

CHECK_SECONDS = 30.0
"""After this time what could not be watched is tried again, and MIG instances are looked up again: the hostengine
learns of a new partition later than NVML, and gives an instance of the old one under the same id until then."""

SIGNALS: Mapping[int, str] = {field.id: field.signal for field in FIELDS if field.signal in PROFILING}
"""DCGM field id -> signal."""

_INTEGER_BLANK, _DOUBLE_BLANK = 0x7FFFFFFFFFFFFFF0, float(1 << 47)
_INTEGER32_BLANKS = range(0x7FFFFFF0, 0x7FFFFFF4)
"""The values from which on a number means blank, not found, not supported or not permitted. A rate in bytes can be
higher than the 32-bit ones."""


def choose_watch_seconds(hostengine: Hostengine, interval_seconds: float) -> float:
    return interval_seconds if hostengine.kind == "embedded" else max(interval_seconds, SHARED_SECONDS)


class ProfiledDevice(NamedTuple):
    """A GPU or MIG instance to profile. `uuid` is its own; that of a GPU without MIG is `gpu_uuid`."""

    uuid: str
    gpu_uuid: str
    gpu_instance_id: int | None = None


class ProfilingSample(NamedTuple):
    """A value, and when the hostengine measured it."""

    value: float
    taken_at: float  # unix seconds


Samples = dict[str, dict[str, ProfilingSample]]  # uuid of the target -> signal -> sample
_EntityKey = tuple[int, int]  # kind, DCGM's id


@dataclass(frozen=True, slots=True)
class _Watch:
    """The watched entities and fields of one GPU, and the memory their values are read into."""

    group: ctypes.c_size_t
    field_group: ctypes.c_size_t
    entities: "ctypes.Array[EntityPair]"
    fields: "ctypes.Array[ctypes.c_ushort]"
    wanted: frozenset[int]  # not all of them can be watched
    uuids: Mapping[_EntityKey, str]
    values: "ctypes.Array[FieldValue]"


@dataclass(slots=True)
class _GpuPlan:
    """What was asked for on one GPU, what is watched, and the reasons why some of it is not."""

    targets: tuple[ProfiledDevice, ...]
    fields: frozenset[int]
    checked_at: float
    watch: _Watch | None = None
    failures: list[Failure] = field(default_factory=list)

    @property
    def has_instances(self) -> bool:
        return any(target.gpu_instance_id is not None for target in self.targets)


class DcgmSession:
    """An open connection to a hostengine."""

    def __init__(self, library: Library, hostengine: Hostengine, *, interval_seconds: float) -> None:
        """Connect, or start an embedded engine. Raises DcgmError."""
        self._library = library
        self._interval = choose_watch_seconds(hostengine, interval_seconds)
        self._is_embedded = hostengine.kind == "embedded"
        self._handle = ctypes.c_size_t()
        self._plans: dict[str, _GpuPlan] = {}  # by uuid of the GPU
        self._instances: Mapping[tuple[str, int], int] = {}  # as `_find_instances` found them last
        self._logged: dict[str, tuple[int, list[int]]] = {}  # uuid of the GPU -> number of entities, fields
        library.call("dcgmInit")
        try:
            self._connect(hostengine)
            self.gpu_ids = self._find_gpus()
            info = VersionInfo()
            self._call("dcgmHostengineVersionInfo", with_version(info))
            facts = dict(part.partition(":")[::2] for part in info.build.decode(errors="replace").split(";"))
            self.version = facts.get("version", "?")  # `4.5.1` of `version:4.5.1;arch:x86_64;...`
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Disconnect; the hostengine drops groups and watches with the connection."""
        if self._handle.value:
            with suppress(DcgmError):
                self._call("dcgmStopEmbedded" if self._is_embedded else "dcgmDisconnect")
        with suppress(DcgmError):
            self._library.call("dcgmShutdown")

    def read(
        self, targets: Iterable[ProfiledDevice], fields: frozenset[int], *, now: float
    ) -> tuple[Samples, list[Failure]]:
        """The latest values of these fields, and the reasons why some targets have none. Raises DcgmError."""
        by_gpu: dict[str, tuple[ProfiledDevice, ...]] = {}
        for target in targets:
            by_gpu[target.gpu_uuid] = (*by_gpu.get(target.gpu_uuid, ()), target)
        self._refresh_plans(by_gpu, fields, now)
        samples: Samples = {}
        for uuid, plan in self._plans.items():
            with self._contain(plan, uuid):
                self._read_values(plan, samples)
        return samples, [failure for plan in self._plans.values() for failure in plan.failures]

    def list_supported(self, gpu_id: int) -> frozenset[int]:
        """The fields that DCGM can profile on this GPU, none if it cannot. Raises DcgmError."""
        request = MetricGroups(gpu_id=gpu_id)
        try:
            self._call("dcgmProfGetSupportedMetricGroups", with_version(request))
        except DcgmError as error:
            if error.code in UNSUPPORTED:
                return frozenset()
            raise
        groups = request.groups[: request.count]
        return frozenset(number for group in groups for number in group.fields[: group.count])

    @contextmanager
    def _contain(self, plan: _GpuPlan, uuid: str) -> Iterator[None]:
        """An error concerns this GPU only, unless the hostengine is lost: it is not watched until the next check."""
        try:
            yield
        except DcgmError as error:
            if error.code in LOST:
                raise
            self._unwatch(plan)
            plan.failures.append(Failure("dcgm", str(error), uuid))

    def _call(self, name: str, *arguments: object) -> None:
        self._library.call(name, self._handle, *arguments)

    def _connect(self, hostengine: Hostengine) -> None:
        if self._is_embedded:
            self._library.call("dcgmStartEmbedded", OPERATION_MODE_AUTO, ctypes.byref(self._handle))
            return
        parameters = ConnectParameters(timeout_ms=CONNECT_MILLISECONDS, is_unix_socket=hostengine.kind == "unix")
        address = os.fsencode(hostengine.address)
        self._library.call("dcgmConnect_v2", address, with_version(parameters), ctypes.byref(self._handle))

    def _find_gpus(self) -> dict[str, int]:
        """uuid -> DCGM's id. DCGM numbers GPUs in its own way, so indexes are never compared."""
        ids, count = (ctypes.c_uint * MAX_GPUS)(), ctypes.c_int()
        self._call("dcgmGetAllDevices", ids, ctypes.byref(count))
        found = {}
        for gpu_id in ids[: count.value]:
            value = FieldValue()
            entity, number = EntityPair(ENTITY_GPU, gpu_id), ctypes.c_ushort(FIELD_UUID)
            with _unless_lost():
                self._call("dcgmEntitiesGetLatestValues", entity, 1, number, 1, LIVE_DATA, ctypes.byref(value))
                if value.status == 0:  # a lost GPU has none
                    found[value.value.text.decode(errors="replace")] = gpu_id
        return found

    def _find_instances(self) -> dict[tuple[str, int], int]:
        """uuid of the GPU and NVML's id of the GPU instance -> DCGM's id."""
        hierarchy = MigHierarchy()
        self._call("dcgmGetGpuInstanceHierarchy", with_version(hierarchy))
        return {
            (each.gpu_uuid.decode(errors="replace"), each.nvml_instance_id): each.entity.id
            for each in hierarchy.entities[: hierarchy.count]
            if each.entity.group == ENTITY_GPU_INSTANCE
        }

    def _refresh_plans(
        self, targets: Mapping[str, tuple[ProfiledDevice, ...]], fields: frozenset[int], now: float
    ) -> None:
        """Watch each GPU whose targets, fields or MIG instances changed; try again what could not be watched."""
        for uuid in self._plans.keys() - targets.keys():
            self._unwatch(self._plans.pop(uuid))
        due = {
            uuid: _GpuPlan(own, fields, now)
            for uuid, own in sorted(targets.items())
            if self._is_due(self._plans.get(uuid), own, fields, now)
        }
        if not due.keys() <= self.gpu_ids.keys():
            self.gpu_ids = self._find_gpus()
        if any(plan.has_instances for plan in due.values()):
            with _unless_lost():
                self._instances = self._find_instances()
        for uuid, plan in due.items():
            before, self._plans[uuid] = self._plans.get(uuid), plan
            with self._contain(plan, uuid):
                self._carry_out(plan, uuid, before)

    @staticmethod
    def _is_due(plan: _GpuPlan | None, targets: tuple[ProfiledDevice, ...], fields: frozenset[int], now: float) -> bool:
        if plan is None or (plan.targets, plan.fields) != (targets, fields):
            return True
        return bool(plan.failures or plan.has_instances) and not 0 <= now - plan.checked_at < CHECK_SECONDS

    def _carry_out(self, plan: _GpuPlan, uuid: str, before: _GpuPlan | None) -> None:
        """Watch what can be watched of this GPU; what is watched already goes on. Raises DcgmError."""
        entities = self._find_entities(plan, uuid)
        if before is not None:
            plan.watch = before.watch
            if plan.watch is None or (plan.watch.uuids, plan.watch.wanted) != (entities, plan.fields):
                self._unwatch(plan)
        if plan.watch is None and uuid in self.gpu_ids:
            plan.watch = self._watch(uuid, entities, plan.fields)

    def _find_entities(self, plan: _GpuPlan, uuid: str) -> dict[_EntityKey, str]:
        """DCGM's entities with the uuids of the targets; a target without one is a failure."""
        if uuid not in self.gpu_ids:
            plan.failures.append(Failure("dcgm", messages.GPU_UNKNOWN.text("en"), uuid))
            return {}
        entities: dict[_EntityKey, str] = {}
        for target in plan.targets:
            if target.gpu_instance_id is None:
                entities[ENTITY_GPU, self.gpu_ids[uuid]] = target.uuid
            elif (found := self._instances.get((uuid, target.gpu_instance_id))) is not None:
                entities[ENTITY_GPU_INSTANCE, found] = target.uuid
            else:
                plan.failures.append(Failure("dcgm", messages.INSTANCE_UNKNOWN.text("en"), target.uuid))
        return entities

    def _watch(self, uuid: str, entities: Mapping[_EntityKey, str], wanted: frozenset[int]) -> _Watch | None:
        """Watch the wanted fields that DCGM can profile on this GPU, if any. Raises DcgmError.

        One group per GPU: DCGM does not profile GPUs of different models in one group.
        """
        fields = sorted(wanted & self.list_supported(self.gpu_ids[uuid]))
        if self._logged.get(uuid) != (len(entities), fields):  # what cannot be watched is tried again and again
            self._logged[uuid] = len(entities), fields
            log.info("dcgm_watched", gpu=uuid, entities=len(entities), fields=",".join(map(str, fields)) or "none")
        if not entities or not fields:
            return None
        name = f"gpusteward-{os.urandom(6).hex()}".encode()  # names of field groups are unique on the hostengine
        group, field_group = ctypes.c_size_t(), ctypes.c_size_t()
        numbers = (ctypes.c_ushort * len(fields))(*fields)
        with ExitStack() as undo:
            self._call("dcgmGroupCreate", GROUP_EMPTY, name, ctypes.byref(group))
            undo.callback(self._call, "dcgmGroupDestroy", group)
            for kind, entity_id in entities:
                self._call("dcgmGroupAddEntity", group, kind, entity_id)
            self._call("dcgmFieldGroupCreate", len(fields), numbers, name, ctypes.byref(field_group))
            undo.callback(self._call, "dcgmFieldGroupDestroy", field_group)
            microseconds, keep_seconds = int(self._interval * 1e6), KEEP_INTERVALS * self._interval
            self._call("dcgmWatchFields", group, field_group, microseconds, keep_seconds, 0)
            undo.pop_all()
        values = (FieldValue * (len(entities) * len(fields)))()
        watched = (EntityPair * len(entities))(*(EntityPair(*key) for key in entities))
        return _Watch(group, field_group, watched, numbers, wanted, entities, values)

    def _unwatch(self, plan: _GpuPlan) -> None:
        """Stop watching this GPU, as far as the hostengine can. Raises DcgmError if it is lost."""
        watch, plan.watch = plan.watch, None
        if watch is not None:
            with _unless_lost():
                self._call("dcgmUnwatchFields", watch.group, watch.field_group)
            with _unless_lost():
                self._call("dcgmFieldGroupDestroy", watch.field_group)
            with _unless_lost():
                self._call("dcgmGroupDestroy", watch.group)

    def _read_values(self, plan: _GpuPlan, samples: Samples) -> None:
        if (watch := plan.watch) is None:
            return
        sizes = len(watch.entities), len(watch.fields)
        self._call("dcgmEntitiesGetLatestValues", watch.entities, sizes[0], watch.fields, sizes[1], 0, watch.values)
        for each in watch.values:
            uuid, signal = watch.uuids.get((each.entity.group, each.entity.id)), SIGNALS.get(each.field)
            number = _number(each)
            if uuid and signal and number is not None and (number <= 1 or not signal.endswith("_ratio")):
                samples.setdefault(uuid, {})[signal] = ProfilingSample(number, each.microseconds / 1e6)


@contextmanager
def _unless_lost() -> Iterator[None]:
    """Ignore an error, unless it means that the hostengine is lost."""
    try:
        yield
    except DcgmError as error:
        if error.code in LOST:
            raise


def _number(value: FieldValue) -> float | None:
    """None if it is blank, negative or not a number."""
    if value.status:
        return None
    if value.type == TYPE_INTEGER:
        integer = value.value.integer
        return float(integer) if 0 <= integer < _INTEGER_BLANK and integer not in _INTEGER32_BLANKS else None
    double = value.value.double
    return double if value.type == TYPE_DOUBLE and math.isfinite(double) and 0 <= double < _DOUBLE_BLANK else None
