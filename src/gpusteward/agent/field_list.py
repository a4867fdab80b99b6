"""The list of DCGM fields to export: the built-in list, or a CSV in dcgm-exporter's format.

    # field, type, help
    DCGM_FI_DEV_GPU_UTIL, gauge, GPU utilization (in %).
    DCGM_FI_DRIVER_VERSION, label, Driver version.

The CSV is parsed by the rules of Go's `encoding/csv`, as in dcgm-exporter. Python's csv module differs: in Go a comment
needs its `#` in the first column, a quote is allowed only around a whole cell, and only blanks are trimmed.

The file or ConfigMap is reloaded when it changes. A list that is invalid at the start stops the agent. One that becomes
invalid later is rejected and logged once; the last valid one stays active.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpusteward.core import dcgm
from gpusteward.core.dcgm import DcgmEvent, DcgmField, DcgmLabel
from gpusteward.core.dcgm_names import SERVED, is_unserved, suggest_name
from gpusteward.core.errors import ConfigurationError, GpustewardError, SourceError
from gpusteward.core.metrics import MetricType
from gpusteward.logs import Log
from gpusteward.watched_file import WatchedFile

log = Log(__name__)


@dataclass(frozen=True, slots=True)
class Record:
    """One CSV row: its first line, and its cells or the reason why it could not be parsed."""

    line: int
    cells: tuple[str, ...] = ()
    fault: str = ""


def read_records(text: str) -> Iterator[Record]:
    """All rows that are neither comments nor empty."""
    lines = text.replace("\r\n", "\n").removesuffix("\r").split("\n")
    number = 0
    while number < len(lines):
        first, used = number, 1
        if lines[first] and not lines[first].startswith("#"):
            record, used = _read_record(lines, first)
            yield record
        number += used


def _read_record(lines: list[str], first: int) -> tuple[Record, int]:
    """The row that begins on this line, and its number of lines: a quoted cell may contain line breaks."""
    cells: list[str] = []
    rest, last = lines[first], first
    while True:
        if rest.startswith('"'):
            cell, rest, last, fault = _read_quoted(lines, rest[1:], last)
        else:
            cell, comma, after = rest.partition(",")
            fault = _BARE_QUOTE if '"' in cell else ""
            rest = comma + after
        cells.append(cell.strip(" "))
        if len(cells) > _MOST_CELLS:
            fault = fault or _TOO_MANY_CELLS
        if fault:
            return Record(first + 1, fault=fault), last - first + 1
        if not rest:
            return Record(first + 1, tuple(cells)), last - first + 1
        rest = rest[1:]


def _read_quoted(lines: list[str], rest: str, last: int) -> tuple[str, str, int, str]:
    """The quoted text, the rest of the line, the line where the quotes end, and an error."""
    cell = ""
    while True:
        inside, quote, rest = rest.partition('"')
        cell += inside
        if quote and rest.startswith('"'):
            cell, rest = cell + '"', rest[1:]
        elif quote:
            return cell, rest, last, "" if not rest or rest.startswith(",") else _TEXT_AFTER_QUOTE
        elif last + 1 == len(lines):
            return cell, "", last, _OPEN_QUOTE
        else:
            last += 1
            cell, rest = cell + "\n", lines[last]


_MOST_CELLS = 100  # a row has 3; with each cell the rest of the line is copied
_TOO_MANY_CELLS = f"more than {_MOST_CELLS} cells"
_BARE_QUOTE = 'a quote inside a cell; quote the whole cell, right after the comma, and double quotes inside it ("")'
_TEXT_AFTER_QUOTE = "text after the closing quote; a quoted cell must end at a comma or at the end of the line"
_OPEN_QUOTE = "a quote that is never closed"


TYPES = ("gauge", "counter", "untyped", "label")


@dataclass(frozen=True, slots=True)
class MetricRow:
    """A metric family to export, under the name written in the row; an empty help means the table's own text."""

    name: str
    field: DcgmField | DcgmEvent
    kind: MetricType
    help: str = ""


@dataclass(frozen=True, slots=True)
class LabelRow:
    """A label to add to every sample of its GPU."""

    name: str
    field: DcgmLabel


@dataclass(frozen=True, slots=True)
class FieldList:
    """The chosen fields, in the order of the file."""

    metrics: tuple[MetricRow, ...]
    labels: tuple[LabelRow, ...] = ()
    unserved: tuple[str, ...] = ()  # real DCGM fields that NVML does not have: accepted, never exported


def default_fields(names: str = "classic") -> FieldList:
    """The built-in list; `names` is the option of the dialect, because dcgm-exporter 4.9 added a field."""
    metrics = [MetricRow(field.name, field, field.kind) for field in dcgm.DEFAULT_FIELDS]
    if names != "classic":
        added = ((name, SERVED[name]) for name in dcgm.V49_DEFAULT_ADDITIONS)
        metrics += [MetricRow(name, field, field.kind) for name, field in added if isinstance(field, DcgmField)]
    return FieldList(tuple(metrics), tuple(LabelRow(label.name, label) for label in dcgm.DEFAULT_LABELS))


def parse_fields(text: str, *, where: str) -> FieldList:
    """Parse a CSV; `where` is its name in error texts.

    Raises ConfigurationError with the first error, its line, and the number of further errors.
    """
    records = list(read_records(text))
    if not records:
        raise ConfigurationError(f"{where}: no metrics found, every line is empty or a comment")
    return choose_fields(records, where=where)


def choose_fields(records: Sequence[Record], *, where: str) -> FieldList:
    """The list that these rows choose. Raises ConfigurationError as `parse_fields` does."""
    rows: list[_Row] = []
    faults: list[tuple[int, ValueError]] = []
    for record in records:
        try:
            rows.append(_read_row(record))
        except ValueError as fault:
            faults.append((record.line, fault))
    if faults:
        line, first = faults[0]
        others = len(faults) - 1
        rest = f" (and {others} more invalid {'line' if others == 1 else 'lines'})" if others else ""
        raise ConfigurationError(f"{where} line {line}: {first}{rest}")
    by_identity: dict[object, _Row] = {}  # the first row of a field wins, also over one with another name of it
    for row in rows:
        by_identity.setdefault(_identity(row), row)
    chosen = by_identity.values()
    if not any(isinstance(row, MetricRow | _UnservedRow) for row in chosen):
        raise ConfigurationError(f"{where}: no metrics found, only labels; add at least one field as gauge or counter")
    return FieldList(
        tuple(row for row in chosen if isinstance(row, MetricRow)),
        tuple(row for row in chosen if isinstance(row, LabelRow)),
        tuple(row.name for row in chosen if isinstance(row, _UnservedRow)),
    )


@dataclass(frozen=True, slots=True)
class _UnservedRow:
    name: str


_Row = MetricRow | LabelRow | _UnservedRow


class _UnknownFieldError(ValueError):
    """Its text is made when it is shown: one of many is, and to find a similar name takes long."""

    def __str__(self) -> str:
        (name,) = self.args
        return f"unknown field {name!r}{suggest_name(name)}"


def _read_row(record: Record) -> _Row:
    """Raises ValueError with the error text."""
    if record.fault:
        raise ValueError(record.fault)
    if len(record.cells) != 3:
        found = f"found {len(record.cells)} at {record.cells[0]!r}"
        hint = "; put a help text with a comma in double quotes" if len(record.cells) > 3 else ""
        raise ValueError(f"expected 3 cells (field, type, help) but {found}{hint}")
    name, kind, help_text = record.cells
    field = SERVED.get(name)
    if field is None and not is_unserved(name):
        raise _UnknownFieldError(name)
    if kind not in TYPES:
        raise ValueError(f"field {name!r} has the type {kind!r}; supported types are {', '.join(TYPES)}")
    if field is None:
        return _UnservedRow(name)
    if isinstance(field, DcgmLabel):
        if kind != "label":
            raise ValueError(f"field {name!r} is a text and cannot be a {kind}; use label")
        return LabelRow(name, field)
    if kind == "label":
        raise ValueError(f"field {name!r} is a number and cannot be a label; use gauge or counter")
    return MetricRow(name, field, MetricType(kind), help_text)


def _identity(row: _Row) -> object:
    """A renamed field with another unit has its own DCGM id: both names may be exported together."""
    if isinstance(row, MetricRow) and isinstance(row.field, DcgmField):
        return row.field.name, row.field.unit_of(row.name)
    return row.name if isinstance(row, _UnservedRow) else row.field.name


CONFIG_MAP_KEY = "metrics"
CONFIG_MAP_PERIOD_SECONDS = 30.0
"""The kubelet needs about a minute to update a mounted ConfigMap; half of that is enough here."""


def warn_of_unserved(fields: FieldList, where: str) -> None:
    """Log which fields of the list are not exported."""
    if fields.unserved:
        log.warning("fields_unserved", source=where, names=",".join(fields.unserved), reason="not in NVML")


class ReloadedFields:
    """The last valid list of one source, and counts of its reloads."""

    def __init__(
        self,
        where: str,
        read: Callable[[], str],
        *,
        period_seconds: float = 0.0,
        has_changed: Callable[[], bool] = lambda: True,
    ) -> None:
        """`has_changed`: whether it has to be read again. Raises ConfigurationError when the list is invalid, and what
        `read` raises."""
        self.reloads_ok = 0
        self.reloads_refused = 0
        self._where, self._read, self._has_changed = where, read, has_changed
        self._period = period_seconds
        self._checked_at: float | None = None
        self._error = ""
        self._text = read()
        self.fields = self._parse(self._text)

    def poll(self, now: float) -> FieldList:
        """The current list; a new object only when it changed. `now` is in monotonic seconds."""
        if self._checked_at is None or now - self._checked_at >= self._period:
            self._checked_at = now
            if self._has_changed():
                self._check()
        return self.fields

    def _check(self) -> None:
        """Log a new error once: the same one repeats at every check until the list is fixed."""
        try:
            text = self._read()
            if text == self._text and not self._error:
                return
            fields = self._parse(text)
        except GpustewardError as error:
            if str(error) != self._error:
                self._error = str(error)
                self.reloads_refused += 1
                log.warning("fields_refused", source=self._where, reason=error, kept="the last valid list")
            return
        self._error = ""
        if text != self._text:  # else it was missing or invalid for a while and is unchanged
            self._text, self.fields = text, fields
            self.reloads_ok += 1
            log.info("fields_reloaded", source=self._where, metrics=len(fields.metrics), labels=len(fields.labels))

    def _parse(self, text: str) -> FieldList:
        fields = parse_fields(text, where=self._where)
        warn_of_unserved(fields, self._where)
        return fields


def watch_field_file(path: Path) -> ReloadedFields:
    """A CSV file. Raises ConfigurationError when it cannot be read or is invalid."""
    file = WatchedFile(path, setting="--collectors")
    return ReloadedFields(str(path), file.read, has_changed=file.has_changed)


def watch_field_config_map(
    name: str, read: Callable[[], Mapping[str, str]], *, period_seconds: float = CONFIG_MAP_PERIOD_SECONDS
) -> ReloadedFields:
    """The key `metrics` of a ConfigMap, read through the API server.

    Raises ConfigurationError when it is invalid, SourceError when it cannot be read.
    """
    where = f"ConfigMap {name}"

    def read_text() -> str:
        try:
            data = read()
        except SourceError as error:
            raise SourceError(f"{where} cannot be read: {error}; check --configmap-data") from error
        if CONFIG_MAP_KEY not in data:
            keys = ", ".join(sorted(data)) or "none"
            raise ConfigurationError(f"{where} has no key {CONFIG_MAP_KEY!r}; its keys: {keys}")
        return data[CONFIG_MAP_KEY]

    return ReloadedFields(where, read_text, period_seconds=period_seconds)
