"""What was promised of the analyzer, and whether it holds. A missed bar is said as loudly as one that holds."""

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
class Bar:
    promise: str
    limit: str
    measured: str
    holds: bool
    judged_by: str

    @property
    def verdict(self) -> str:
        return "PASS" if self.holds else "MISSED"


def judge(results: Results) -> list[Bar]:
    """Only of the sizes that were measured; in the order of the promises."""
    short = [ways for ways in results.ways if ways.window_minutes == SHORT]
    return [
        *(_over_curl(ways) for ways in results.ways),
        *(bar for ways in short if ways.gpus in (1_000, 50_000) for bar in _beside_seed(ways)),
        *(_memory(served) for served in results.served if served.gpus == 50_000),
        *_growth(sorted(short, key=lambda ways: ways.gpus)),
        *_windows(results.ways),
        *_answers(results.served),
    ]


def _over_curl(ways: Ways) -> Bar:
    return Bar(
        f"a cycle over {ways.gpus:,} GPUs, {ways.window_minutes:g} min, against curl",
        "at most 1.2 x",
        f"{ways.over_curl:.2f} x",
        ways.over_curl <= 1.2,
        "each round's cycle until its result is up against its curl, median of the rounds; until /metrics shows it too "
        f"{ways.over_curl_with_page:.2f} x",
    )


def _beside_seed(ways: Ways) -> Iterator[Bar]:
    """As it asks, and as it could: the part of its condition that costs the most adds nothing to a UUID. And as we
    could: a cycle leaves out what nobody judges."""
    judged = "the seed's way on a sample, scaled to all, against the same round's cycle; median of the rounds"
    every = (
        f"{judged}; the cycle taken for {ways.cost_of_all:.2f} of it, which is what curl needs for three queries more"
    )
    for seconds, cost, how, judged_by in (
        (ways.seed, 1.0, "", judged),
        (ways.seed, ways.cost_of_all, ", if the clock's peak and free memory were asked for too", every),
        (ways.seed_by_uuid, 1.0, ', if it left out its `pod!=""`', judged),
    ):
        faster = ways.faster_than(seconds) / cost
        promise = f"faster than the seed's way at {ways.gpus:,} GPUs{how}"
        yield Bar(promise, "at least 80 x", f"{faster:.0f} x", faster >= 80, judged_by)


def _memory(served: Served) -> Bar:
    peak = served.after_requests.peak * KIB / MB
    return Bar(
        f"RSS of `gpusteward serve` at {served.gpus:,} GPUs",
        "at most 200 MB",
        f"{peak:.0f} MB",
        peak <= 200,
        "VmHWM: the most it ever had, after all its cycles and requests",
    )


def _growth(ways: Sequence[Ways]) -> Iterator[Bar]:
    """The law over all sizes; and every step of it beside, where one alone would hide in the noise of the machine."""
    if len(ways) < 2:
        return
    sizes = [log(each.gpus) for each in ways]
    power = linear_regression(sizes, [log(median(each.cycles_whole)) for each in ways]).slope
    yield Bar(
        f"a cycle grows from {ways[0].gpus:,} to {ways[-1].gpus:,} GPUs with their number to the power of",
        "at most 1",
        f"{power:.2f}",
        power <= 1,
        "least squares over the medians of the sizes. Steps, medians of each round's quotient: "
        + "; ".join(_describe_step(small, large) for small, large in pairwise(ways)),
    )


def _describe_step(small: Ways, large: Ways) -> str:
    grown, floor = _grow(large.cycles_whole, small.cycles_whole), _grow(large.curl, small.curl)
    return (
        f"{large.gpus / small.gpus:g} x the GPUs of {small.gpus:,} took {grown:.2f} x the time, of curl {floor:.2f} x,"
        f" of the analyzer's own CPU {_grow(large.cycles_cpu, small.cycles_cpu):.2f} x"
    )


def _grow(large: Iterable[float], small: Iterable[float]) -> float:
    """Sizes take turns, so a round is one moment of the machine."""
    return median(more / less for more, less in zip(large, small, strict=True))


def _windows(ways: Iterable[Ways]) -> Iterator[Bar]:
    by_window = {(each.gpus, each.window_minutes): each for each in ways}
    for (gpus, minutes), long in by_window.items():
        short = by_window.get((gpus, SHORT))
        if minutes == LONG and short is not None:
            ours, floor = _grow(long.cycles_whole, short.cycles_whole), _grow(long.curl, short.curl)
            yield Bar(
                f"a cycle grows from {SHORT} min to 2 h beyond what curl grows",
                "at most 1.5 x",
                f"{ours / floor:.2f} x",
                ours / floor <= 1.5,
                f"at {gpus:,} GPUs, medians of the rounds: the cycle grew {ours:.2f} x, curl {floor:.2f} x",
            )


def _answers(served: Iterable[Served]) -> Iterator[Bar]:
    promises: tuple[tuple[int, str, float], ...] = (
        (10_000, PAGE, 50),
        (10_000, PAGE_GZIP, 50),
        (50_000, WORKLOADS, 20),
    )
    by_size = {each.gpus: each for each in served}
    for gpus, name, limit in promises:
        if gpus in by_size:
            yield _answer(by_size[gpus].milliseconds[name], f"{name} at {gpus:,} GPUs", limit=limit)


def _answer(milliseconds: Sequence[float], promise: str, *, limit: float) -> Bar:
    middle = median(milliseconds)
    spread = f"first {milliseconds[0]:.1f}, worst {max(milliseconds):.1f}"
    return Bar(
        promise,
        f"at most {limit:g} ms",
        f"{middle:.1f} ms",
        middle <= limit,
        f"median of {len(milliseconds)} requests on one connection, to the last byte; {spread}",
    )
