"""What pods use of their hosts, from the counters of gpusteward's agents on the pages that are scraped.

Reclaim asks about minutes, the judge about a day. So of each pod a value every five minutes is kept for an hour, one
every hour for a day, and always the newest: about 1 KB, however often a target is scraped.
"""

import re
from collections.abc import Callable, Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from gpusteward.analyzer.sources.live_readings import HostUse
from gpusteward.analyzer.sources.scrape.page_parser import ParseErrors, parse_line, parse_value
from gpusteward.analyzer.sources.scrape.ring_buffers import LOOK_BACK_SECONDS
from gpusteward.core import metrics

DENSE_STEP, DENSE_SECONDS = 300.0, 3600.0
STEP, KEEP_SECONDS = 3600.0, 27 * 3600.0
"""The judge looks back 25 hours, to a value that is an hour older at most."""
MOST_LEFT_OUT = 6
"""A sixth of the time that is asked for: five minutes of the half hour of a stall, nothing of the ten minutes of
reclaim."""
MOST_PODS_OF_TARGET = 1000
"""A kubelet has 110 pods by default, 250 in OpenShift."""
MOST_PODS = 20_000
"""Of all targets: 25 MB. Of further ones nothing is known."""

_SIGNALS = (metrics.POD_CPU_SECONDS.name, metrics.POD_DISK_BYTES.name, metrics.POD_NETWORK_BYTES.name)
_LINES = re.compile(rb"^(?:%s)\{.*$" % b"|".join(name.encode() for name in _SIGNALS), re.MULTILINE)
_COLUMN: Mapping[bytes, int] = {name.encode(): column for column, name in enumerate(_SIGNALS, start=1)}

PodName = tuple[str, str]
"""Namespace and name."""
_Values = NDArray[np.float64]
"""A line per kept page: its time, and the counters in the order of `HostUse`; NaN: not on the page."""


class HostCounters:
    """Not safe to use from several threads at once: the store holds a lock."""

    def __init__(self) -> None:
        self._targets: dict[str, dict[PodName, _Values]] = {}
        self._pods = 0

    def add(self, target: str, page: bytes, at: float, *, admits: Callable[[str], bool]) -> None:
        """`admits`: whether the target may report this node."""
        before = self._targets.get(target, {})
        known = {name: values for name, values in before.items() if at - KEEP_SECONDS < values[-1, 0] <= at}
        for name, line in _read_page(page, at, admits).items():
            is_new = name not in known
            if is_new and (len(known) >= MOST_PODS_OF_TARGET or self._pods - len(before) + len(known) >= MOST_PODS):
                continue
            known[name] = line[None] if is_new else _append(known[name], line)
        self._pods += len(known) - len(before)
        if known:
            self._targets[target] = known
        else:
            self._targets.pop(target, None)

    def drop(self, target: str) -> None:
        self._pods -= len(self._targets.pop(target, {}))

    def read(self, targets: Collection[str], name: PodName, at: float, *, seconds: float) -> HostUse:
        """Means of one pod over so long, or over what is kept of it. Of several targets that report it, the most."""
        columns = [
            _measure(values, at, seconds=seconds)
            for target in targets
            if (values := self._targets.get(target, {}).get(name)) is not None
        ]
        most = np.fmax.reduce(columns) if columns else np.full(len(_SIGNALS), np.nan)
        return HostUse(*(None if np.isnan(value) else float(value) for value in most))


def _read_page(page: bytes, at: float, admits: Callable[[str], bool]) -> dict[PodName, NDArray[np.float64]]:
    errors = ParseErrors()  # malformed lines are counted by the page parser
    found: dict[PodName, NDArray[np.float64]] = {}
    # Looking at every line costs as much as parsing a page; most pages have none of these lines.
    first = min((start for name in _SIGNALS if (start := page.find(name.encode())) >= 0), default=len(page))
    for match in _LINES.finditer(page, first):
        parsed = parse_line(match[0], errors=errors)
        if parsed is None or not admits(parsed.labels.get("node", "")):
            continue
        value = parse_value(parsed.line, parsed.end, errors=errors, at=at)
        name = parsed.labels.get("namespace", ""), parsed.labels.get("pod", "")
        if value is not None and np.isfinite(value) and all(name):
            line = found.setdefault(name, np.array([at, *[np.nan] * len(_SIGNALS)]))
            line[_COLUMN[parsed.name]] = value
    return found


def _append(values: _Values, line: NDArray[np.float64]) -> _Values:
    """The newest line replaces the one before it, unless that one is to be kept."""
    if len(values) > 1 and values[-1, 0] - values[-2, 0] < DENSE_STEP:
        values[-1] = line
        return values
    at, kept, last = line[0], [], -np.inf
    for number, time in enumerate(values[:, 0].tolist()):
        if at - time <= DENSE_SECONDS or (at - time <= KEEP_SECONDS and time - last >= STEP):
            kept.append(number)
            last = time
    return np.concatenate((values[kept], line[None]))


def _measure(values: _Values, at: float, *, seconds: float) -> NDArray[np.float64]:
    """Growth per second of each counter since the last line before the window, or the first one that is kept. Since the
    first line in the window, if that leaves out little of it: what came before is none of the question."""
    lines = values[values[:, 0] <= at]
    rates = np.full(len(_SIGNALS), np.nan)
    if not len(lines) or lines[-1, 0] < at - LOOK_BACK_SECONDS:
        return rates  # its pod has ended
    begin = max(0, int(np.searchsorted(lines[:, 0], at - seconds, side="right")) - 1)
    left_out = lines[begin + 1, 0] - (at - seconds) if begin + 1 < len(lines) else np.inf
    lines = lines[begin + (left_out <= DENSE_STEP <= seconds / MOST_LEFT_OUT) :]
    for column in range(len(_SIGNALS)):
        counter = lines[:, column + 1]
        known = lines[~np.isnan(counter)]
        # A counter of bytes that never grew says nothing: those of its pod may go elsewhere (NFS, RDMA).
        is_unknown = np.isnan(counter[-1]) or (column > 0 and counter[-1] == 0)
        if is_unknown or len(known) < 2:
            continue
        steps = np.diff(known[:, column + 1])
        grown = np.where(steps < 0, known[1:, column + 1], steps).sum()  # lower than before: it began again at zero
        rates[column] = grown / (known[-1, 0] - known[0, 0])
    return rates
