"""The dcgm dialect: dcgm-exporter's metric names, labels and units.

Deliberate differences from dcgm-exporter:

- one sample per device or MIG instance; a shared GPU has no pod label (dcgm-exporter uses the last pod it saw);
- power, energy and similar values of a MIG device are exported once, for the device, not for each instance;
- DCGM_FI_DEV_XID_ERRORS has err_code and err_msg only as an option: they start a new series for every XID;
- in the per-pod form, utilization, memory, power and energy are of the pod; a sample without a pod has the rest.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpusteward.agent.dialects.dcgm_events import DcgmEvents
from gpusteward.agent.dialects.dcgm_options import DcgmOptions, DeviceSelection
from gpusteward.agent.dialects.dcgm_rows import (
    XID_ERROR,
    LabelBuilder,
    LabelledRow,
    Rows,
    exported_names,
    find_missing,
    list_rows,
)
from gpusteward.agent.field_list import FieldList, MetricRow
from gpusteward.agent.usage_counters import SnapshotView
from gpusteward.core.dcgm import (
    CLOCK_EVENTS_COUNT,
    CONVERT,
    DERIVED,
    OPTIONAL_IN_DERIVED,
    PEER_STATUS,
    DcgmEvent,
    DcgmField,
    derive_memory_used_ratio,
)
from gpusteward.core.exposition import Family, LabelCache, Labels, Samples
from gpusteward.core.metrics import Metric
from gpusteward.core.node.signals import SIGNALS, Scope
from gpusteward.logs import Log

log = Log(__name__)

Read = Callable[[Mapping[str, float]], float | None]


@dataclass(frozen=True, slots=True)
class _FieldPlan:
    """A family with one sample per row of its scope."""

    metric: Metric
    scope: Scope
    read: Read
    needs: tuple[str, ...]  # without one of these signals there is no sample
    is_last_xid: bool = False


@dataclass(frozen=True, slots=True)
class _EventPlan:
    """A family whose samples come from events of each device."""

    metric: Metric
    event: DcgmEvent

    @property
    def needs(self) -> tuple[str, ...]:
        """Without one of these signals there is no sample."""
        return self.event.signals


class DcgmDialect:
    """Renders a view as dcgm-exporter would."""

    name = "dcgm"

    def __init__(self, options: DcgmOptions, fields: FieldList, *, labels: LabelCache) -> None:
        self._options = options
        self._cache = labels
        self._events = DcgmEvents(options)
        self._devices_checked = False
        self._fields: FieldList | None = None
        self.use(fields)

    def use(self, fields: FieldList) -> None:
        """Export these fields from the next view on; does nothing if the list is unchanged."""
        if fields is self._fields:
            return
        self._fields = fields
        self._plans = plan_families(fields, self._options)
        self._label_builder = LabelBuilder(self._options, fields.labels)
        self._wanted = wanted_signals(fields)
        self._events.watches_clocks = any(row.field is CLOCK_EVENTS_COUNT for row in fields.metrics)

    @property
    def wanted(self) -> frozenset[str]:
        """Names of the signals it needs."""
        return self._wanted

    @property
    def exported(self) -> frozenset[str]:
        """Signals that every device has here; none if only some devices, or the use of pods, are exported."""
        if self._options.device_per_pod or self._options.devices != DeviceSelection() or self._fields is None:
            return frozenset()
        return frozenset(row.field.signal for row in self._fields.metrics if isinstance(row.field, DcgmField))

    def families(self, view: SnapshotView) -> list[Family]:
        """The metric families of this view."""
        self._warn_missing_devices(view)
        self._events.advance(view.snapshot)
        rows = list_rows(view, self._options, self._label_builder, cache=self._cache)
        return [Family(plan.metric, self._samples(plan, rows)) for plan in self._plans]

    def list_unavailable(self, unsupported: frozenset[str]) -> list[str]:
        """Names of the families that a GPU without these signals cannot have."""
        return [plan.metric.name for plan in self._plans if not unsupported.isdisjoint(plan.needs)]

    def _warn_missing_devices(self, view: SnapshotView) -> None:
        """Warn once, after the first GPUs are read, about selected ids that do not exist."""
        if self._devices_checked or not view.snapshot.readings:
            return
        self._devices_checked = True
        if missing := find_missing(view.snapshot.readings, self._options.devices):
            log.warning("devices_missing", ids=",".join(missing))

    def _samples(self, plan: _FieldPlan | _EventPlan, rows: Rows) -> Samples:
        if isinstance(plan, _EventPlan):
            return [
                (self._cache.render(row.labels.with_event(labels)), value)
                for row in rows[Scope.DEVICE]
                if not row.is_rest
                for labels, value in self._events.samples(plan.event, row.reading)
            ]
        read = plan.read
        found = [(row, value) for row in rows[plan.scope] if (value := read(row.signals)) is not None]
        if plan.is_last_xid and self._options.xid_error_labels:
            return [(self._cache.render(_label_xid(row, int(value))), value) for row, value in found]
        return [(row.text, value) for row, value in found]


def wanted_signals(fields: FieldList) -> frozenset[str]:
    """The signals behind a field list, and `peer_status` if the P2P status is exported."""
    signals = {signal for row in fields.metrics for signal in row.field.signals}
    if any(row.field is PEER_STATUS for row in fields.metrics):
        signals.add("peer_status")
    return frozenset(signals)


def plan_families(fields: FieldList, options: DcgmOptions) -> list[_FieldPlan | _EventPlan]:
    """One family per exported name, each name once."""
    plans: dict[str, _FieldPlan | _EventPlan] = {}
    for row in fields.metrics:
        for name in exported_names(row, options.names):
            plans.setdefault(name, _plan(row, name))
    return list(plans.values())


def _plan(row: MetricRow, name: str) -> _FieldPlan | _EventPlan:
    field = row.field
    if isinstance(field, DcgmEvent):
        return _EventPlan(Metric(name, row.kind, row.help or field.help, dialect="dcgm"), field)
    # A help text from the CSV applies only to the name and unit it was written for.
    help_text = row.help if row.help and name == row.name else field.help_of(name)
    metric = Metric(name, row.kind, help_text, dialect="dcgm")
    needs = tuple(each for each in field.signals if each == field.signal or each not in OPTIONAL_IN_DERIVED)
    scope = SIGNALS[field.signals[0]].scope
    return _FieldPlan(metric, scope, _reader(field, name), needs, field.signal == "last_xid")


def _label_xid(row: LabelledRow, xid: int) -> Labels:
    from gpusteward.agent.dialects.xid_texts import describe_xid  # a table that only this option needs

    return row.labels.with_holder(*zip(XID_ERROR, (str(xid), describe_xid(xid)), strict=True)).all()


def _reader(field: DcgmField, name: str) -> Read:
    if field.signal in DERIVED:
        return derive_memory_used_ratio
    signal, convert = field.signal, CONVERT[field.unit_of(name)]

    def read(signals: Mapping[str, float]) -> float | None:
        value = signals.get(signal)
        return None if value is None else convert(value)

    return read
