"""`python -m bench.judge_truth`: the judge against the truth of simulated workloads, and what judging costs.

Writes bench/results/judge.md. Exits with 0 whether the limits hold or not.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from statistics import median
from typing import Any

from bench.measure import About, describe_run, name_command, print_progress
from bench.report import Bar, publish, render_bars, render_head, render_table
from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.workloads import judge_workloads
from gpusteward.core.verdicts import Activity, Signature
from gpusteward.simulate.fleets import fleet
from gpusteward.simulate.workloads import Kind
from tests.analyzer.judge.truth_cases import (
    CYCLE,
    CYCLES,
    MOMENTS,
    RULES,
    Case,
    even_servers,
    find_brief_work,
    judge_nodes,
    lone_nodes,
)
from tests.analyzer.usage_tables import AGENT_STEP, AT, STEP, WINDOW, large_table
from tests.simulate.single_workload import single_workload_node

SEEDS = range(200)
BRIEF_SEEDS = range(60)
FLEET_NODES = 60
LOOKS = ((60, 30), (60, 15), (60, 5), (120, 30), (600, 300), (600, 60), (600, 30))
"""Seconds of a window, and between two samples."""
ROWS = 50_000
ROUNDS = 9

Counts = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Brief:
    """Windows in which a notebook worked for seconds only, judged from two kinds of data."""

    windows: int
    missed_by_gauges: int
    missed_with_memory: int
    missed_by_counter: int


@dataclass(frozen=True, slots=True)
class Look:
    """One cycle over servers at work, with too short a window or too few samples."""

    window_seconds: float
    step_seconds: float
    active: int
    idle: int
    unknown: int
    wrongly_idle: int  # there were requests between two samples
    accused: int  # classified as keep-alive


@dataclass(frozen=True, slots=True)
class Found:
    """All results of one run."""

    about: About
    activities: Counts  # kind and truth -> verdict
    signatures: Counts  # kind -> signature
    fleet: Counts  # share and truth -> verdict
    doubts: dict[str, int]  # in the fleet
    brief: Brief
    looks: list[Look]
    judge_milliseconds: list[float]  # CPU, round by round
    workloads_milliseconds: list[float]
    bars: list[Bar]


KINDS = [kind for kind in Kind if kind is not Kind.STALLED]
"""These are lone GPUs, and only a gang of several stalls."""


def judge_kinds() -> list[Case]:
    """Every kind on a working morning and at night; notebooks, which change the most, at four moments."""
    cases = []
    for kind in KINDS:
        print_progress(f"  {kind}")
        nodes = lone_nodes(kind, SEEDS)
        for at in MOMENTS if kind is Kind.NOTEBOOK else MOMENTS[:2]:
            cases += judge_nodes(nodes, at)
    return cases


def judge_brief_work() -> Brief:
    windows = [
        (single_workload_node(Kind.NOTEBOOK, seed), at)
        for seed in BRIEF_SEEDS
        for at in find_brief_work(Kind.NOTEBOOK, seed, least=0.05, most=12, count=2)
    ]

    def count(**options: Any) -> int:
        return sum(case.is_false_idle for node, at in windows for case in judge_nodes([node], at, **options))

    return Brief(len(windows), count(cycles=1), count(cycles=2), count(cycles=2, counter_step=AGENT_STEP))


def look_once(window: float, step: float) -> Look:
    """Servers in a single cycle, without the history of an earlier one."""
    nodes = lone_nodes(Kind.INFERENCE, SEEDS)
    cases = [case for at in MOMENTS[:2] for case in judge_nodes(nodes, at, window=window, step=step, cycles=1)]
    counts = Counter(case.activity for case in cases)
    return Look(
        window,
        step,
        active=counts[Activity.ACTIVE],
        idle=counts[Activity.IDLE],
        unknown=counts[Activity.UNKNOWN],
        wrongly_idle=sum(case.is_false_idle for case in cases),
        accused=sum(case.signature is Signature.KEEP_ALIVE for case in cases),
    )


def measure_cost() -> tuple[list[float], list[float]]:
    """CPU milliseconds of judging and of joining to workloads; with a full history, as in every cycle but the first."""
    _, history = judge(large_table(ROWS), RULES, VerdictHistory(), now=AT)
    judging, joining = [], []
    for number in range(ROUNDS):
        table = large_table(ROWS, at=AT + CYCLE * (number + 1), seed=number)
        start = time.process_time()
        verdicts, history = judge(table, RULES, history, now=table.at)
        middle = time.process_time()
        judge_workloads(verdicts, RULES)
        judging.append((middle - start) * 1000)
        joining.append((time.process_time() - middle) * 1000)
    return judging, joining


def tabulate(cases: Iterable[Case], name: Callable[[Case], str], *, by: Callable[[Case], str]) -> Counts:
    rows: dict[str, Counter[str]] = {}
    for case in cases:
        rows.setdefault(name(case), Counter())[by(case)] += 1
    return {row: dict(counts) for row, counts in sorted(rows.items())}


def set_bars(
    cases: Sequence[Case], others: Sequence[Case], *, brief: Brief, looks: Sequence[Look], costs: Sequence[float]
) -> list[Bar]:
    """`others`: the cases of the fleet and of the servers under an even load."""
    false = sum(case.is_false_idle for case in (*cases, *others))
    bars = [
        Bar("active workloads judged idle", "0", str(false), false == 0),
        Bar("the same, brief work, agent's counter", "0", str(brief.missed_by_counter), brief.missed_by_counter == 0),
    ]
    for kind in (Kind.EMPTY, Kind.PARKED, Kind.NOTEBOOK, Kind.HUNG):
        rested = [case for case in cases if case.kind is kind and not case.worked]
        share = sum(case.activity is Activity.IDLE for case in rested) / len(rested)
        bars.append(Bar(f"idle {kind} judged idle", "at least 95 %", f"{share:.1%} of {len(rested)}", share >= 0.95))
    made_up = [case for case in cases if case.kind is Kind.KEEP_ALIVE]
    honest = [case for case in (*cases, *others) if case.kind is not Kind.KEEP_ALIVE]
    found, accused = (sum(case.signature is Signature.KEEP_ALIVE for case in each) for each in (made_up, honest))
    accused += sum(look.accused for look in looks)
    share = found / len(made_up)
    bars += [
        Bar("keep-alive work found", "at least 95 %", f"{share:.1%} of {len(made_up)}", share >= 0.95),
        Bar("real work classified as keep-alive", "0", str(accused), accused == 0),
    ]
    cost = median(costs)
    return [*bars, Bar(f"CPU to judge {ROWS:,} rows", "100 ms", f"{cost:.0f} ms", cost < 100)]


def run() -> Found:
    print_progress("kinds")
    cases = judge_kinds()
    print_progress("fleet")
    fleet_cases = judge_nodes(fleet(FLEET_NODES), MOMENTS[0])
    print_progress("even servers")
    even_cases = [case for at in MOMENTS[:2] for case in judge_nodes(even_servers(SEEDS), at)]
    print_progress("brief work")
    brief = judge_brief_work()
    print_progress("short looks")
    looks = [look_once(*each) for each in LOOKS]
    print_progress("cost")
    judging, joining = measure_cost()
    return Found(
        describe_run(
            name_command("judge_truth"), {"judge": {"numpy": version("numpy"), "pydantic": version("pydantic")}}
        ),
        tabulate(cases, lambda case: f"{case.kind}, {_truth(case)}", by=lambda case: case.activity.value),
        tabulate(cases, lambda case: case.kind.value, by=lambda case: case.signature.value)
        | tabulate(even_cases, lambda _: "inference, even load", by=lambda case: case.signature.value),
        tabulate(fleet_cases, lambda case: f"{case.share}, {_truth(case)}", by=lambda case: case.activity.value),
        dict(Counter(case.doubt.value for case in fleet_cases if case.doubt)),
        brief,
        looks,
        judging,
        joining,
        set_bars(cases, [*fleet_cases, *even_cases], brief=brief, looks=looks, costs=judging),
    )


def _truth(case: Case) -> str:
    return "worked" if case.worked else "did nothing"


def render_page(found: Found) -> str:
    brief = found.brief
    return "\n".join(
        [
            render_head("The judge, against the truth", found.about),
            "## Limits\n\n" + render_bars(found.bars),
            f"## Truth and verdict\n\n{len(SEEDS)} seeds of each kind, one workload on one GPU, all models in turn; "
            f"{WINDOW / 60:.0f} minutes sampled every {STEP:.0f} s, {CYCLES} cycles, one every {CYCLE / 60:.0f} "
            "minutes. The truth is whether any kernel ran within the window.\n\n" + _render_counts(found.activities),
            "An idle row that is judged active stopped less than a window ago: a pause so far.\n",
            "## Kind and signature\n\n" + _render_counts(found.signatures),
            "A hung workload that still works is steady, a notebook that rests is parked, keep-alive work of a pod "
            f"younger than {RULES.signatures.keep_alive.least_seconds / 60:.0f} minutes is steady. Even load: servers "
            "at a constant 1 to 40 %, as flat as keep-alive work.\n",
            f"## A fleet of {FLEET_NODES} nodes, by sharing mode\n\n" + _render_counts(found.fleet),
            f"Why unknown: {', '.join(f'{doubt} ({count})' for doubt, count in found.doubts.items())}. No data: MIG "
            "instances of models before Hopper, whose activity only DCGM can measure.\n",
            "## Work between two samples\n\n"
            f"{brief.windows} windows in which a notebook worked for 0.05 to 12 s only. Judged idle: "
            f"{brief.missed_by_gauges} by gauges sampled every {STEP:.0f} s alone, {brief.missed_with_memory} with the "
            f"history of one cycle, {brief.missed_by_counter} with a mean from the agent's busy-seconds counter. "
            "No gauge can show work that ends before the next sample.\n",
            "## Too short a window, too few samples\n\n"
            f"{len(SEEDS)} servers at two moments, one cycle each. Fewer than {RULES.activity.least_samples:.0f} "
            "samples without work are unknown, not idle; nothing is keep-alive within one window. Rows wrongly judged "
            f"idle had all their requests between two samples: the counter sees those.\n\n{_render_looks(found.looks)}",
            f"## Cost at {ROWS:,} rows\n\nCPU, median of {ROUNDS} rounds: {median(found.judge_milliseconds):.0f} ms to "
            f"judge (least {min(found.judge_milliseconds):.0f}), {median(found.workloads_milliseconds):.0f} ms to join "
            f"to workloads (least {min(found.workloads_milliseconds):.0f}).\n",
        ]
    )


def _render_counts(counts: Counts) -> str:
    columns = sorted({name for row in counts.values() for name in row})
    rows = [(name, *(str(row.get(column, "")) for column in columns)) for name, row in counts.items()]
    return render_table(("", *columns), rows)


def _render_looks(looks: Sequence[Look]) -> str:
    rows = [
        (
            f"{look.window_seconds:.0f} s",
            f"{look.step_seconds:.0f} s",
            *(str(count) for count in (look.active, look.unknown, look.idle, look.wrongly_idle, look.accused)),
        )
        for look in looks
    ]
    columns = ("window", "a sample every", "active", "unknown", "idle", "wrongly idle", "keep-alive")
    return render_table(columns, rows)


if __name__ == "__main__":
    sys.exit(publish("judge", lambda: render_page(run())))
