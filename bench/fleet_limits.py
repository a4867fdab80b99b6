"""The limits of the analyzer, each compared with what was measured."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log
from statistics import linear_regression, median

from bench.bars import KIB, MB
from bench.fleet_results import Results, Served, Ways
from bench.served import PAGE, PAGE_GZIP, WORKLOADS

SHORT, LONG = 10, 120  # minutes of a window


@dataclass(frozen=True, slots=True)
class LimitCheck:
    name: str
    limit: str
    measured: str
    holds: bool
    method: str

    @property
    def verdict(self) -> str:
        return "PASS" if self.holds else "MISSED"


def check_limits(results: Results) -> list[LimitCheck]:
    """Only for the sizes that were measured."""
    short = [ways for ways in results.ways if ways.window_minutes == SHORT]
    return [
        *(_over_curl(ways) for ways in results.ways),
        *(check for ways in short if ways.gpus in (1_000, 50_000) for check in _against_oour(ways)),
        *(_memory(served) for served in results.served if served.gpus == 50_000),
        *_growth(sorted(short, key=lambda ways: ways.gpus)),
        *_windows(results.ways),
        *_responses(results.served),
    ]


def _over_curl(ways: Ways) -> LimitCheck:
    return LimitCheck(
        f"a cycle over {ways.gpus:,} GPUs, {ways.window_minutes:g} min, against curl",
        "at most 1.2 x",
        f"{ways.over_curl:.2f} x",
        ways.over_curl <= 1.2,
        "each round's cycle until its result is published against its curl, median; until /metrics shows it "
        f"{ways.over_curl_with_page:.2f} x",
    )


def _against_oour(ways: Ways) -> Iterator[LimitCheck]:
    """gpu-oour's queries as they are, and without the part of their condition that costs most and selects nothing. The
    cycle as it is, and extrapolated to signals that it does not read."""
    judged = "gpu-oour's queries on a sample, scaled to all, against the same round's cycle; median of the rounds"
    factor = f"{ways.cost_of_all_signals:.2f}, which is what curl needs with three more queries"
    every = f"{judged}; the cycle multiplied by {factor}"
    for seconds, cost, how, method in (
        (ways.oour, 1.0, "", judged),
        (ways.oour, ways.cost_of_all_signals, ", if the peak of the clock and free memory were read too", every),
        (ways.oour_by_uuid, 1.0, ', without its `pod!=""`', judged),
    ):
        faster = ways.faster_than(seconds) / cost
        name = f"faster than gpu-oour's queries at {ways.gpus:,} GPUs{how}"
        yield LimitCheck(name, "at least 80 x", f"{faster:.0f} x", faster >= 80, method)


def _memory(served: Served) -> LimitCheck:
    peak = served.after_requests.peak * KIB / MB
    return LimitCheck(
        f"RSS of `gpusteward serve` at {served.gpus:,} GPUs",
        "at most 200 MB",
        f"{peak:.0f} MB",
        peak <= 200,
        "VmHWM: the highest value, after all cycles and requests",
    )


def _growth(ways: Sequence[Ways]) -> Iterator[LimitCheck]:
    """The exponent over all sizes; single steps, which are noisy, are listed beside it."""
    if len(ways) < 2:
        return
    sizes = [log(each.gpus) for each in ways]
    power = linear_regression(sizes, [log(median(each.cycles_whole)) for each in ways]).slope
    yield LimitCheck(
        f"a cycle grows from {ways[0].gpus:,} to {ways[-1].gpus:,} GPUs with their number to the power of",
        "at most 1",
        f"{power:.2f}",
        power <= 1,
        "least squares over the medians of the sizes. Steps, medians of each round's ratio: "
        + "; ".join(_describe_step(small, large) for small, large in pairwise(ways)),
    )


def _describe_step(small: Ways, large: Ways) -> str:
    grown, floor = _grow(large.cycles_whole, small.cycles_whole), _grow(large.curl, small.curl)
    return (
        f"{large.gpus / small.gpus:g} x the GPUs of {small.gpus:,} took {grown:.2f} x the time, of curl {floor:.2f} x,"
        f" of the analyzer's own CPU {_grow(large.cycles_cpu, small.cycles_cpu):.2f} x"
    )


def _grow(large: Iterable[float], small: Iterable[float]) -> float:
    """Sizes take turns, so one round sees the machine in one state."""
    return median(more / less for more, less in zip(large, small, strict=True))


def _windows(ways: Iterable[Ways]) -> Iterator[LimitCheck]:
    by_window = {(each.gpus, each.window_minutes): each for each in ways}
    for (gpus, minutes), long in by_window.items():
        short = by_window.get((gpus, SHORT))
        if minutes == LONG and short is not None:
            ours, floor = _grow(long.cycles_whole, short.cycles_whole), _grow(long.curl, short.curl)
            yield LimitCheck(
                f"a cycle grows from {SHORT} min to 2 h beyond what curl grows",
                "at most 1.5 x",
                f"{ours / floor:.2f} x",
                ours / floor <= 1.5,
                f"at {gpus:,} GPUs, medians of the rounds: the cycle grew {ours:.2f} x, curl {floor:.2f} x",
            )


def _responses(served: Iterable[Served]) -> Iterator[LimitCheck]:
    limits: tuple[tuple[int, str, float], ...] = (
        (10_000, PAGE, 50),
        (10_000, PAGE_GZIP, 50),
        (50_000, WORKLOADS, 20),
    )
    by_size = {each.gpus: each for each in served}
    for gpus, name, limit in limits:
        if gpus in by_size:
            yield _check_response(by_size[gpus].milliseconds[name], f"{name} at {gpus:,} GPUs", limit=limit)


def _check_response(milliseconds: Sequence[float], name: str, *, limit: float) -> LimitCheck:
    middle = median(milliseconds)
    spread = f"first {milliseconds[0]:.1f}, worst {max(milliseconds):.1f}"
    return LimitCheck(
        name,
        f"at most {limit:g} ms",
        f"{middle:.1f} ms",
        middle <= limit,
        f"median of {len(milliseconds)} requests on one connection, to the last byte; {spread}",
    )
