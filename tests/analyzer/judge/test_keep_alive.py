"""Keep-alive at any level: what public scripts hold for a day and a night, and what only looks like them.

Each row of a table is a workload of its own, in windows of ten minutes over 30 hours. Levels are those that the scripts
name in their help texts, and those that were published for real work.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.reasons import explain_row
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.judge.signatures.keep_alive import KeepAliveRule, count_night_seconds
from gpusteward.analyzer.tables import ACTIVITIES, SIGNATURES, STEPS, VerdictTable
from gpusteward.core.node.containers import Container, Workload
from gpusteward.core.usages import AllocationKey, Measure, Stat
from gpusteward.core.verdicts import Activity, Signature, Step
from tests.analyzer.reclaim.pod_trace import FOLDER, read_trace
from tests.analyzer.usage_tables import AT, DAY, GIB, WINDOW, Stats, signal, table_of

RULES = Rules()
HOURS = 30
SEEDS = range(8)
Chance = np.random.Generator
Windows = Callable[[int], Stats]
"""The number of a window -> what a GPU shows in it."""


def draw(chance: Chance, low: float, high: float) -> float:
    return float(chance.uniform(low, high))


def host(disk_bytes: float = 0.0, network: float = 60.0) -> Stats:
    """Bytes on disks within 25 hours, and per second over the network."""
    rates = {Measure.DISK: disk_bytes / 90_000, Measure.NETWORK: network}
    return {(measure, stat): rate for measure, rate in rates.items() for stat in (Stat.MEAN, Stat.PEAK)}


STILL = host(100e3)


def gpu(core: float, watts: float, *, copy: float = 0.0, memory: float = 8 * GIB, processes: float = 1.0) -> Stats:
    """As gpusteward's agent shows it."""
    core = min(core, 1.0)
    return (
        signal(Measure.CORE, core, min(core + 0.2, 1.0), spread=0.05)
        | {(Measure.CORE, Stat.COUNT): 120.0, (Measure.BUSY, Stat.MEAN): core}
        | signal(Measure.MEMORY_COPY, copy)
        | signal(Measure.MEMORY_USED, memory)
        | signal(Measure.PROCESSES, processes)
        | signal(Measure.POWER, watts)
        | signal(Measure.POWER_LIMIT, 700)
    )


class Script(NamedTuple):
    name: str
    levels: tuple[float, float]
    copy: tuple[float, float]  # memory copy utilization
    watts: tuple[float, float]
    memory_gib: tuple[float, float]
    noise: float = 0.003  # of a mean over ten minutes

    def draw(self, chance: Chance) -> Windows:
        level, copy, watts, memory = (
            draw(chance, *each) for each in (self.levels, self.copy, self.watts, self.memory_gib)
        )
        phase = draw(chance, 0, 6)

        def window(number: int) -> Stats:
            core = level + draw(chance, -self.noise, self.noise)
            warm = 1 + 0.015 * np.sin(number / 23 + phase)  # the room over a day
            return gpu(core, watts * warm * draw(chance, 0.995, 1.005), copy=copy, memory=memory * GIB) | STILL

        return window


SCRIPTS = (
    Script("gpu-keepalive at 50 %", (0.49, 0.51), (0.02, 0.2), (180, 350), (1, 3), noise=0.008),
    Script("KeepGPU, relu over its block", (0.1, 0.25), (0.1, 0.25), (150, 250), (1, 2)),
    Script("GrabGPU, one increment per byte", (0.95, 1.0), (0.5, 1.0), (250, 400), (16, 30)),
    Script("GPUSnatcher, matmul", (0.97, 1.0), (0.1, 0.5), (400, 690), (17, 72)),
    Script("busygpu", (0.1, 0.9), (0.02, 0.3), (150, 500), (1, 4)),
    Script("occupy_gpu at 30 %", (0.28, 0.32), (0.0, 0.1), (140, 250), (1, 4)),
    Script("GPU heartbeat above 65 %", (0.65, 0.75), (0.05, 0.3), (250, 450), (1, 2), noise=0.008),
    Script("GPUOccupier at 60 %", (0.58, 0.62), (0.05, 0.3), (250, 450), (20, 21)),
    Script("occupied-gpus, convolution of zeros", (0.2, 0.7), (0.02, 0.3), (130, 200), (60, 78)),
    Script("forge_load, threads that do nothing", (0.5, 0.6), (0.0, 0.0), (120, 160), (0.11, 0.12), noise=0.008),
    Script("GPUSitter", (0.97, 1.0), (0.1, 0.4), (400, 690), (70, 72)),
    Script("keep_alive.py of 0 and 1", (0.97, 1.0), (0.0, 0.02), (115, 180), (0.5, 1)),
)
"""Those of the public scripts that hold a level for hours: 12 of 15. Of the others one only holds memory, one runs
inside a real job, and one starts and ends with the use of its neighbours."""


def held_by(count: int, *, namespace: str = "team", kind: str = "Pod", share: str = "exclusive") -> list[AllocationKey]:
    return [
        AllocationKey(
            f"GPU-{number}",
            "",
            Container(namespace, f"p-{number}", "", "main", Workload(kind, namespace, f"w-{number}"), (), AT - 3 * DAY),
            f"node-{number}",
            "0",
            "NVIDIA H100 80GB HBM3",
            share,
        )
        for number in range(count)
    ]


def judge_windows(
    *rows: Windows,
    hours: float = HOURS,
    rules: Rules = RULES,
    held: list[AllocationKey] | None = None,
    ends_at: float = AT,
    every: float = WINDOW,
) -> VerdictTable:
    history, count = VerdictHistory(), round(hours * 3600 / every)
    for number in range(count):
        at = ends_at - (count - 1 - number) * every
        table = table_of(*(row(number) for row in rows), allocations=held or held_by(len(rows)), at=at)
        verdicts, history = judge(table, rules, history, now=at)
    return verdicts


def names(verdicts: VerdictTable) -> list[Signature]:
    return [SIGNATURES[code] for code in verdicts.signature]


def draw_all(draws: Callable[[Chance], Windows]) -> list[Windows]:
    return [draws(np.random.default_rng(seed)) for seed in SEEDS]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_that_holds_a_level_for_a_day_is_found_whatever_level_and_kernel(script: Script):
    verdicts = judge_windows(*draw_all(script.draw))
    assert set(names(verdicts)) == {Signature.KEEP_ALIVE}
    assert {ACTIVITIES[code] for code in verdicts.activity} == {Activity.ACTIVE}
    assert {STEPS[code] for code in verdicts.step} == {Step.NOTICE}
    assert verdicts.ineffective_since.tolist() == pytest.approx([AT - HOURS * 3600] * len(SEEDS))
    text = "\n".join(explain_row(verdicts, 0, rules=RULES))
    assert "this looks like an artificial load" in text
    assert "through the night" in text


def hung(watts: float, **other: float) -> Windows:
    """One kernel that never ends."""
    row = gpu(1.0, watts) | signal(Measure.CORE, 1.0, spread=0.0) | STILL
    return lambda _: row | {(Measure(name), stat): value for name, value in other.items() for stat in Stat}


def test_one_gpu_whose_kernel_may_never_end_is_not_called_keep_alive_and_its_hours_are_ineffective():
    verdicts = judge_windows(hung(130.0))
    assert names(verdicts) == [Signature.STEADY]
    assert {STEPS[code] for code in verdicts.step} == {Step.NOTICE}
    assert verdicts.ineffective_since.tolist() == pytest.approx([AT - HOURS * 3600])
    text = "\n".join(explain_row(verdicts, 0, rules=RULES))
    assert "At 100% in every sample" in text
    assert "a kernel that waits or never ends, or a load that only keeps the GPU busy" in text
    assert "artificial" not in text
    assert np.isnan(judge_windows(hung(130.0), hours=11).ineffective_since).all()


@pytest.mark.parametrize(
    "row",
    [hung(420.0), hung(130.0, memory_copy_ratio=0.2), hung(130.0, tensor_ratio=0.1), hung(130.0, dram_ratio=0.3)],
    ids=["power of work", "memory copies", "tensor cores", "DRAM"],
)
def test_100_per_cent_that_computes_for_a_day_is_an_artificial_load(row: Windows):
    assert names(judge_windows(row)) == [Signature.KEEP_ALIVE]


def test_ranks_of_a_server_that_wait_for_a_day_are_not_called_keep_alive():
    def waits(_: int) -> Stats:
        return gpu(0.99, 140.0) | signal(Measure.CORE, 0.99, 1.0, spread=0.002) | STILL

    alone, ranks = held_by(1), held_by(2)
    for number, one in enumerate(ranks):
        container = replace(one.container, workload=Workload("Deployment", "team", "server"))
        ranks[number] = replace(one, container=container)
    assert names(judge_windows(waits, waits, held=ranks)) == [Signature.STEADY] * 2
    assert names(judge_windows(waits, held=alone)) == [Signature.KEEP_ALIVE]


def test_burn_in_at_100_per_cent_is_effective():
    assert np.isnan(judge_windows(hung(130.0), rules=with_rule(exempt_nodes=["node-0"])).ineffective_since).all()


HALF = SCRIPTS[0]


def steady(number: int) -> Stats:
    return gpu(0.8, 400.0, copy=0.3) | STILL


def test_nobody_is_accused_before_twelve_hours_of_which_six_are_at_night():
    assert names(judge_windows(steady, hours=11.5)) == [Signature.STEADY]
    morning = AT - 6.2 * 3600  # 08:00 UTC: the night is over
    assert names(judge_windows(steady, hours=12, ends_at=morning)) == [Signature.KEEP_ALIVE]
    evening = morning + 14.5 * 3600
    assert names(judge_windows(steady, hours=14, ends_at=evening)) == [Signature.STEADY]


def test_the_night_is_that_of_the_site():
    rules = RULES.model_copy(update={"time_zone": "Asia/Shanghai"})
    evening = AT + 8.3 * 3600  # 22:30 UTC, 06:30 in Shanghai
    assert names(judge_windows(steady, hours=13, ends_at=evening, rules=rules)) == [Signature.KEEP_ALIVE]
    assert names(judge_windows(steady, hours=13, ends_at=evening)) == [Signature.STEADY]


@pytest.mark.parametrize(
    ("since", "at", "hours"),
    [(0, 24, 10), (8, 22, 0), (23, 31, 8), (7, 8, 1), (7.5, 23, 1.5), (0, 240, 30), (12, 13, 0)],
)
def test_nights_are_counted_from_ten_to_eight(since: float, at: float, hours: float):
    midnight = 1_789_948_800.0
    assert count_night_seconds(midnight + since * 3600, midnight + at * 3600, "UTC") == hours * 3600


@pytest.mark.parametrize("level", [0.6, 0.99])
def test_without_witnesses_on_the_host_a_level_of_real_work_accuses_nobody(level: float):
    unknown = {(measure, stat): np.nan for measure in (Measure.DISK, Measure.NETWORK) for stat in Stat}
    for absent in (unknown, {(Measure.DISK, Stat.MEAN): 0.0}, {(Measure.NETWORK, Stat.MEAN): 0.0}):
        verdicts = judge_windows(lambda _, known=absent: gpu(level, 400.0, copy=0.0) | known)
        assert names(verdicts) == [Signature.STEADY]


def low(number: int) -> Stats:
    """As the rule of a low level without memory traffic needs it."""
    return gpu(0.3, 200.0) | signal(Measure.CORE, 0.3) | {(Measure.CORE, Stat.COUNT): 120.0}


def test_without_witnesses_a_low_level_without_traffic_is_suspected_and_its_hours_stay_effective():
    verdicts = judge_windows(low)
    assert names(verdicts) == [Signature.KEEP_ALIVE]
    assert np.isnan(verdicts.ineffective_since).all()
    assert "this looks like an artificial load" in "\n".join(explain_row(verdicts, 0, rules=RULES))


def test_with_witnesses_the_same_load_is_ineffective_since_it_began_and_one_that_writes_is_not_suspected():
    assert judge_windows(lambda number: low(number) | STILL).ineffective_since.tolist() == [AT - HOURS * 3600]
    assert names(judge_windows(lambda number: low(number) | host(5e8))) == [Signature.STEADY]
    assert names(judge_windows(lambda number: low(number) | host(0, 1e4))) == [Signature.STEADY]


def with_rule(**values: object) -> Rules:
    signatures = RULES.signatures
    held = KeepAliveRule.model_validate({**signatures.keep_alive.model_dump(), **values})
    return RULES.model_copy(update={"signatures": signatures.model_copy(update={"keep_alive": held})})


@pytest.mark.parametrize(
    "values",
    [
        {"exempt_namespaces": ["team"]},
        {"exempt_namespaces": ["other", "te*"]},
        {"exempt_nodes": ["node-0"]},
        {"exempt_nodes": ["node-*"]},
    ],
)
def test_burn_in_and_acceptance_tests_that_a_setting_names_are_never_accused(values: Mapping[str, object]):
    assert names(judge_windows(steady, rules=with_rule(**values))) == [Signature.STEADY]
    assert names(judge_windows(low, rules=with_rule(**values))) == [Signature.STEADY]
    assert names(judge_windows(steady, rules=with_rule(exempt_nodes=["node-1"]))) == [Signature.KEEP_ALIVE]


def test_after_a_restart_of_the_analyzer_it_takes_as_long_again():
    verdicts = judge_windows(steady, hours=11)  # a new history
    assert names(verdicts) == [Signature.STEADY]


@pytest.mark.parametrize(
    "row",
    [
        lambda n: gpu(0.8, 400.0, processes=2) | STILL,
        lambda n: gpu(0.8, 400.0, processes=np.nan) | STILL,
        lambda n: gpu(0.8, 400.0) | {(Measure.OTHER_PROCESSES, Stat.PEAK): 1.0} | STILL,
        lambda n: gpu(0.8, 400.0) | {(Measure.RUNNING, Stat.LOWEST): 0.0} | STILL,
        lambda n: gpu(0.8, 400.0) | {(Measure.PCIE, Stat.PEAK): 4e7} | STILL,
        lambda n: gpu(0.8, 400.0) | {(Measure.NVLINK, Stat.PEAK): 4e9} | STILL,
        lambda n: gpu(0.8, 400.0) | {(Measure.DECODER, Stat.PEAK): 0.1} | STILL,
        lambda n: gpu(0.8, 400.0, memory=(8 + n / 30) * GIB) | STILL,
        lambda n: gpu(0.8, 400.0) | signal(Measure.MEMORY_USED, 8 * GIB, 9 * GIB) | STILL,
        lambda n: gpu(0.8, 400.0) | signal(Measure.MEMORY_USED, 0.2 * GIB, 0.21 * GIB) | STILL,
        lambda n: gpu(0.8 + 0.05 * (n % 60 == 59), 400.0) | STILL,
        lambda n: gpu(0.7 + 0.0006 * n, 400.0) | STILL,
        lambda n: gpu(0.8, 400.0 + 40 * (n % 60 == 59)) | STILL,
        lambda n: gpu(0.8, np.nan) | STILL,
        lambda n: gpu(0.01, 120.0, copy=0.005) | STILL,
        lambda n: ({} if n % 60 == 59 else gpu(0.8, 400.0)) | STILL,
    ],
    ids=[
        *("two processes", "processes unknown", "processes of others", "requests are counted", "data over PCIe"),
        *(
            "data over NVLink",
            "video",
            "memory grows",
            "memory varies",
            "little memory varies",
            "one window of more work",
            "a slow drift",
        ),
        *("one window of more power", "power unknown", "too low", "a gap in the data"),
    ],
)
def test_what_differs_in_one_point_is_not_accused(row: Windows):
    assert names(judge_windows(row)) != [Signature.KEEP_ALIVE]


def test_time_between_windows_that_do_not_overlap_is_not_claimed():
    assert names(judge_windows(steady, every=900)) == [Signature.STEADY]


@pytest.mark.parametrize(("share", "is_whole"), [("exclusive", True), ("time-sliced", False), ("hami", False)])
def test_a_part_of_a_gpu_is_not_accused(share: str, is_whole: bool):
    verdicts = judge_windows(steady, held=held_by(1, share=share))
    assert (names(verdicts) == [Signature.KEEP_ALIVE]) == is_whole


# Real work that is even for a long time.


def monte_carlo(chance: Chance) -> Windows:
    """Full load, everything in registers, one result a day."""
    level, watts = draw(chance, 0.97, 1.0), draw(chance, 250, 650)
    written = host(draw(chance, 2e6, 5e8))
    return lambda _: gpu(level + draw(chance, -0.002, 0.002), watts * draw(chance, 0.99, 1.01)) | written


def training_in_memory(chance: Chance) -> Windows:
    """Its data is on the GPU, its checkpoints are written where no counter sees them: it pauses for them."""
    level, watts, every = draw(chance, 0.9, 0.98), draw(chance, 350, 650), int(chance.integers(3, 30))
    pause = draw(chance, 20, 180) / 600

    def window(number: int) -> Stats:
        factor = 1 - pause * (number % every == every - 1)
        return gpu(level * factor + draw(chance, -0.01, 0.01), watts * factor, copy=0.4, memory=60 * GIB) | STILL

    return window


def training_on_nfs(chance: Chance) -> Windows:
    """Its bytes are in no counter of the pod, but its batches go over PCIe."""
    level, watts = draw(chance, 0.6, 0.98), draw(chance, 250, 650)
    rate = draw(chance, 3e7, 2e9)
    return lambda _: (
        gpu(level + draw(chance, -0.01, 0.01), watts * draw(chance, 0.98, 1.02), copy=0.4, memory=60 * GIB)
        | {(Measure.PCIE, Stat.PEAK): rate}
        | STILL
    )


def even_server(chance: Chance) -> Windows:
    """A batch of requests without an end, and nothing counts them."""
    level, watts, network = draw(chance, 0.5, 0.99), draw(chance, 250, 500), draw(chance, 2e3, 5e6)
    return lambda _: gpu(level, watts, copy=0.5, memory=70 * GIB) | host(0, network)


@pytest.mark.parametrize("work", [monte_carlo, training_in_memory, training_on_nfs, even_server])
def test_even_work_of_more_than_a_day_is_not_accused(work: Callable[[Chance], Windows]):
    verdicts = judge_windows(*draw_all(work), held=held_by(len(SEEDS), kind="Job"))
    assert Signature.KEEP_ALIVE not in names(verdicts)
    assert np.isnan(verdicts.ineffective_since).all()


def test_a_gpu_that_stood_still_is_judged_by_the_host_of_a_day_only():
    """What was read of a row that stood still covers half an hour."""
    history = VerdictHistory()
    for number in range(HOURS * 6):
        at = AT - (HOURS * 6 - 1 - number) * WINDOW
        verdicts, history = judge(table_of(steady(number), allocations=held_by(1), at=at), RULES, history, now=at)
    assert names(verdicts) == [Signature.KEEP_ALIVE]
    was_frozen = replace(history, past=replace(history.past, frozen_since=np.array([AT - 7200.0])))
    table = table_of(steady(0), allocations=held_by(1), at=AT + WINDOW)
    verdicts, _ = judge(table, RULES, was_frozen, now=AT + WINDOW)
    assert names(verdicts) == [Signature.STEADY]


@pytest.mark.skipif(not FOLDER.exists(), reason="the trace is not part of the repository")
def test_of_the_inference_pods_of_a_public_trace_none_is_accused_even_if_everything_else_were_constant():
    """22.8 hours of 76 pods. The trace has neither power nor hosts: they are what they would be of a script."""
    trace = {pod: np.array(samples) for pod, samples in read_trace().items()}
    begin, end = (choose(own[index, 0] for own in trace.values()) for choose, index in ((min, 0), (max, -1)))
    held, history, longest, found = held_by(len(trace), kind="Deployment"), VerdictHistory(), 0.0, set[Signature]()
    held = [replace(one, container=replace(one.container, started_at=begin - DAY)) for one in held]
    for at in np.arange(begin + WINDOW, end, WINDOW / 2).tolist():
        rows, coverage = list[Stats](), list[float]()
        for own in trace.values():
            seen = own[(own[:, 0] > at - WINDOW) & (own[:, 0] <= at), 1] / 100
            mean = float(seen.mean()) if len(seen) else np.nan
            peak, spread = (float(seen.max()), float(seen.std())) if len(seen) else (np.nan, np.nan)
            core = signal(Measure.CORE, mean, peak, spread=spread) | {(Measure.CORE, Stat.COUNT): float(len(seen))}
            rows.append(gpu(0.5, 100 + 400 * mean) | core | {(Measure.BUSY, Stat.MEAN): np.nan} | STILL)
            coverage.append(min(1.0, len(seen) / 10))
        table = table_of(*rows, allocations=held, coverage=coverage, at=at)
        verdicts, history = judge(table, RULES, history, now=at)
        longest = max(longest, float(np.max(np.nan_to_num(at - history.past.constant_since), initial=0.0)))
        found |= set(names(verdicts))
    assert {Signature.BURSTY, Signature.PARKED} <= found
    assert not found & {Signature.KEEP_ALIVE, Signature.STALLED}
    assert longest < 3600  # far from the twelve hours
