"""What the screen asks a source, and what it is given."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from gpusteward.cli.api.workloads import WorkloadName
from gpusteward.cli.output.paragraphs import Line

FIRST_ROWS = 100
MOST_ROWS = 2000
"""Nobody reads further down a list: search, filter and sort find the rest."""

Item = Mapping[str, Any]


class View(StrEnum):
    GPUS = "gpus"
    WORKLOADS = "workloads"
    TENANTS = "tenants"


@dataclass(frozen=True, slots=True)
class Asked:
    """Which rows, and in which order."""

    view: View
    sort: str = ""
    activity: str = ""
    namespace: str = ""
    words: tuple[str, ...] = ()
    rows: int = FIRST_ROWS  # how many of the first ones


@dataclass(frozen=True, slots=True)
class Given:
    """Rows, of how many, and what is true of the whole."""

    items: Sequence[Item]
    total: int
    summary: Sequence[tuple[str, str]] = ()  # text and the word that colours it
    at: float | None = None  # the moment it speaks of
    warning: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """The course of one measure. What lies between two points further apart than the rest is a gap."""

    label: str
    points: Sequence[tuple[float, float]]
    top: float | None = None  # None: the highest point
    shown: str = ""  # the last value, for people


@dataclass(frozen=True, slots=True)
class Detail:
    """One workload opened."""

    lines: Sequence[Line]
    charts: Sequence[Chart] = field(default_factory=tuple)
    grounds: Sequence[Line] = field(default_factory=tuple)  # of those lines; they come below the processes
    seconds: float = 3600.0
    at: float | None = None


class Source(Protocol):
    """Answers in a thread; every method may raise SourceError."""

    title: str
    answers_apart: bool
    """Whether charts and processes take so long that they are asked for by themselves."""

    has_verdicts: bool

    def read(self, asked: Asked) -> Given: ...

    def find_workloads(self, view: View, item: Item) -> Sequence[WorkloadName]:
        """The workloads behind a row."""

    def open(self, workload: WorkloadName) -> Detail: ...

    def read_charts(self, workload: WorkloadName, seconds: float) -> Detail: ...

    def read_processes(self, workload: WorkloadName) -> Sequence[Line]: ...
