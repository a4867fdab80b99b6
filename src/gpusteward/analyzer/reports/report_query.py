"""What a report is about: its period, grouping and scope. Standard library only, because clients make queries too."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from gpusteward.core.errors import ConfigurationError
from gpusteward.core.node.containers import LABEL_PATTERN
from gpusteward.messages.errors import ledger_errors

_DURATION = "[1-9][0-9]{0,4}[hdw]"
_UNITS_MS = {"h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}

GROUPINGS = ("cluster", "namespace", "workload", "model", "node", "user", "team", "day")
"""What rows can be grouped by."""

LABEL_PREFIX = "label:"


def find_grouping(by: str) -> str:
    """One of `GROUPINGS`, or `label`."""
    return "label" if by.startswith(LABEL_PREFIX) else by


def find_label(by: str) -> str:
    """The key of the label that rows are grouped by; empty if they are not."""
    return by.removeprefix(LABEL_PREFIX) if by.startswith(LABEL_PREFIX) else ""


def check_grouping(by: str, labels: Sequence[str] | None = None) -> None:
    """`labels`: those in the ledger; None if they are not known here. Raises ConfigurationError."""
    label = find_label(by)
    if label and re.fullmatch(LABEL_PATTERN, label) and (labels is None or label in labels):
        return
    if label and labels is not None:
        known = ", ".join(labels) or "-"
        raise ConfigurationError(ledger_errors.UNKNOWN_LABEL, label=label, labels=known)
    if find_grouping(by) not in GROUPINGS:
        groupings = ", ".join((*GROUPINGS, f"{LABEL_PREFIX}KEY"))
        raise ConfigurationError(ledger_errors.INVALID_GROUPING, by=by, groupings=groupings)


ClusterNamespace = tuple[str, str]
"""A cluster and one of its namespaces."""


@dataclass(frozen=True, slots=True)
class ReportScope:
    """Which allocations a report covers. Unallocated GPUs belong to no namespace: they are left out where
    only some namespaces are covered."""

    namespaces: tuple[str, ...] = ()  # only these; empty: all
    clusters: tuple[str, ...] = ()
    visible: tuple[ClusterNamespace, ...] | None = None  # of these only; None: of all

    def __bool__(self) -> bool:
        """Whether it leaves anything out."""
        return bool(self.namespaces or self.clusters) or self.visible is not None

    @property
    def has_fleet(self) -> bool:
        """Whether it covers GPUs that no namespace holds."""
        return not self.namespaces and self.visible is None


ALL = ReportScope()


@dataclass(frozen=True, slots=True)
class ReportQuery:
    """What a report covers."""

    since_ms: int
    until_ms: int
    by: str = "namespace"  # one of `GROUPINGS`, or `label:KEY`
    namespaces: tuple[str, ...] = ()  # only these; empty: all
    top: int = 10  # number of wasters and findings
    rows: int = 1000  # number of groups; the others are summed in one row
    clusters: tuple[str, ...] = ()  # only these; empty: all
    visible: tuple[ClusterNamespace, ...] | None = None  # what the reader of the report may see; None: everything

    @property
    def scope(self) -> ReportScope:
        return ReportScope(self.namespaces, self.clusters, self.visible)

    @property
    def named_namespaces(self) -> tuple[str, ...]:
        """The namespaces that the report names as its scope; empty: all."""
        return self.namespaces or tuple(sorted({namespace for _, namespace in self.visible or ()}))


def parse_time_range(since: str, until: str | None, *, now_ms: int) -> tuple[int, int]:
    """Both ends in milliseconds since 1970; a duration as `since` counts back from `until`.

    Raises ConfigurationError.
    """
    until_ms = parse_time(until, before_ms=now_ms) if until else now_ms
    since_ms = parse_time(since, before_ms=until_ms)
    if since_ms >= until_ms:
        raise ConfigurationError(ledger_errors.SINCE_NOT_BEFORE_UNTIL)
    return since_ms, until_ms


def parse_time(text: str, *, before_ms: int) -> int:
    """`7d` (before `before_ms`), `2026-11-01` (UTC) or `2026-11-01T08:00:00+08:00` in milliseconds since 1970.

    Raises ConfigurationError.
    """
    text = text.strip()
    if re.fullmatch(_DURATION, text):
        return max(0, before_ms - int(text[:-1]) * _UNITS_MS[text[-1]])
    try:
        time = datetime.fromisoformat(text.upper())
    except ValueError:
        raise ConfigurationError(ledger_errors.INVALID_TIME) from None
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return max(0, int((time - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000))


@dataclass(frozen=True, slots=True)
class EndedQuery:
    """The name of a workload or pod; an empty namespace, kind or cluster matches all."""

    name: str
    namespace: str = ""
    kind: str = ""  # in any case
    cluster: str = ""
    visible: tuple[ClusterNamespace, ...] | None = None  # what the reader may see; None: everything
