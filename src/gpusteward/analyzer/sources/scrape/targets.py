"""Whom to scrape: a list, a file, or the pods of the cluster. What cannot be read leaves those known before."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings, parse_target
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.http.urls import HttpUrl
from gpusteward.logs import Log

log = Log(__name__)

NOTHING_SET = (
    "nothing to read from: set prometheus.url to a Prometheus-compatible engine, or scrape.targets or "
    "scrape.targets_file to exporters such as gpusteward's agent; in a cluster its agents are found by themselves"
)


@dataclass(frozen=True)
class Target:
    """One exporter."""

    url: HttpUrl
    labels: Mapping[str, str] = field(default_factory=dict)  # added to its series where they have none of that name

    @property
    def name(self) -> str:
        """The URL, always with its port."""
        return f"{self.url.scheme}://{self.url.address}{self.url.path}"


class TargetList(Protocol):
    """Somebody who knows targets."""

    origin: str  # as people would say it
    seconds: float  # between two looks
    complaint: str  # about those of them that had to be left out

    def read(self) -> tuple[Target, ...] | None:
        """The targets as they are now; None if they have not changed. Raises SourceError, ConfigurationError."""


class FixedList:
    """Targets written into the settings."""

    origin = "scrape.targets"
    seconds = float("inf")
    complaint = ""

    def __init__(self, settings: ScrapeSettings) -> None:
        """Raises ConfigurationError."""
        self._targets = tuple(
            Target(parse_target(text, scheme=settings.scheme, port=settings.port)) for text in settings.targets
        )

    def read(self) -> tuple[Target, ...]:
        return self._targets


class KnownTargets:
    """The targets of all lists, and what is wrong with a list."""

    def __init__(self, lists: Iterable[TargetList], *, limit: int) -> None:
        self._lists = tuple(lists)
        self._limit = limit
        self._read: dict[str, tuple[Target, ...]] = {}
        self._next: dict[str, float] = {}
        self.complaints: dict[str, str] = {}  # by origin
        self.left_out = 0

    @property
    def origins(self) -> tuple[str, ...]:
        return tuple(one.origin for one in self._lists)

    def look(self, now: float) -> Mapping[str, Target]:
        """By name; lists that are due are read again, the others stand."""
        for one in self._lists:
            if now >= self._next.get(one.origin, 0.0):
                self._next[one.origin] = now + one.seconds
                self._look_at(one)
        found = {target.name: target for targets in self._read.values() for target in targets}
        self.left_out = max(len(found) - self._limit, 0)
        return dict(list(found.items())[: self._limit])

    def _look_at(self, one: TargetList) -> None:
        try:
            targets = one.read()
        except (SourceError, ConfigurationError) as error:
            self._complain(one.origin, str(error))
            return
        # A fault nobody foresaw costs this look: those known before are scraped on.
        except Exception as error:  # noqa: BLE001
            self._complain(one.origin, f"unexpected {type(error).__name__}: {error}")
            return
        if targets is not None:
            self._read[one.origin] = targets
            log.info("targets_found", origin=one.origin, targets=len(targets))
        if one.complaint:
            self._complain(one.origin, one.complaint)
        else:
            self.complaints.pop(one.origin, None)

    def _complain(self, origin: str, reason: str) -> None:
        if self.complaints.get(origin) != reason:
            kept = len(self._read.get(origin, ()))
            log.warning("targets_unreadable", origin=origin, reason=reason, kept=f"{kept} targets")
        self.complaints[origin] = reason
