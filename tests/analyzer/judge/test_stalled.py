"""Stalled: what is busy without doing anything, and what only looks like it.

Levels are drawn from the ranges that were published for each kind of work, not from the numbers of the rule. A scene is
what every GPU of a workload shows in one window of ten minutes; a cycle follows every five.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.reasons import explain_row
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.judge.signatures.loaded_idle import LoadedIdle
from gpusteward.analyzer.judge.workloads import judge_workloads
from gpusteward.analyzer.tables import ACTIVITIES, SIGNATURES, STEPS, VerdictTable
from gpusteward.core.node.containers import Container, Workload
from gpusteward.core.usages import AllocationKey, Measure, Stat
from gpusteward.core.verdicts import Activity, Signature, Step
from tests.analyzer.usage_tables import AT, DAY, GIB, WINDOW, Stats, signal, table_of

RULES = Rules()
EVERY = 300.0
JOB, SERVER = Workload("PyTorchJob", "team", "train"), Workload("Deployment", "team", "server")
SEEDS = range(12)
Chance = np.random.Generator


class Board(NamedTuple):
    """Watts of a model as published: nvidia-smi of loaded, stuck and working GPUs."""

    name: str
    limit: float
    asleep: tuple[float, float]  # without a context, or in P8
    loaded: tuple[float, float]
    stuck: tuple[float, float]  # above loaded
    working: tuple[float, float]
    clock: float = 1.98e9


H100 = Board("NVIDIA H100 80GB HBM3", 700, (69, 74), (109, 137), (3, 40), (300, 690))
A100 = Board("NVIDIA A100-SXM4-80GB", 400, (51, 60), (62, 75), (4, 25), (180, 400), 1.41e9)
T4 = Board("Tesla T4", 70, (9, 11), (26, 30), (10, 14), (45, 70), 1.59e9)
L4 = Board("NVIDIA L4", 72, (12, 16), (28, 33), (5, 12), (50, 72), 2.04e9)
L40S = Board("NVIDIA L40S", 350, (30, 36), (76, 80), (14, 20), (160, 350), 2.52e9)
BOARDS = [H100, A100, T4, L4, L40S]


def draw(chance: Chance, between: tuple[float, float]) -> float:
    return float(chance.uniform(*between))


def gpu(core: float, watts: float, *, spread: float = 0.0, memory: float = 60 * GIB, board: Board = H100) -> Stats:
    """One GPU as dcgm-exporter shows it without profiling; the highest sample is twice the spread above the mean."""
    return (
        signal(Measure.CORE, core, min(core + 2 * spread, 1.0), spread=spread)
        | {(Measure.CORE, Stat.COUNT): 20.0, (Measure.ENGINE, Stat.STEP): 15.0}
        | signal(Measure.MEMORY_COPY, 0.0)
        | signal(Measure.MEMORY_USED, memory)
        | signal(Measure.POWER, watts)
        | signal(Measure.POWER_LIMIT, board.limit)
        | signal(Measure.SM_CLOCK, board.clock)
    )


def profiled(*, sm: float, tensor: float = 0.0, dram: float = 0.0, engine: float = 0.99) -> Stats:
    return (
        {(Measure.SM_ACTIVE, Stat.PEAK): sm}
        | signal(Measure.TENSOR, tensor)
        | signal(Measure.DRAM, dram)
        | signal(Measure.ENGINE, engine)
    )


def traffic(measure: Measure, rate: float) -> Stats:
    return {(measure, Stat.PEAK): rate}


def host(disk: float = 0.0, network: float = 0.0) -> Stats:
    """Of the busiest pod of the workload, bytes per second."""
    rates = {Measure.DISK: disk, Measure.NETWORK: network}
    return {(measure, stat): rate for measure, rate in rates.items() for stat in (Stat.MEAN, Stat.PEAK)}


STILL = host(200.0, 3000.0)


COPIES = signal(Measure.MEMORY_COPY, 0.01, 0.02)


def waiting(chance: Chance, board: Board = H100, *, watts: float | None = None) -> Stats:
    """A GPU in a collective that nobody joins."""
    watts = draw(chance, board.loaded) + draw(chance, board.stuck) if watts is None else watts
    drawn = gpu(draw(chance, (0.99, 1.0)), watts, board=board)
    return drawn | signal(Measure.POWER, watts, watts + draw(chance, (0.0, 0.02)) * board.limit)


def silent(chance: Chance, board: Board = H100) -> Stats:
    return gpu(0.0, draw(chance, board.loaded), board=board)


def training(chance: Chance, board: Board = H100) -> Stats:
    return (
        gpu(draw(chance, (0.9, 0.98)), draw(chance, board.working), spread=draw(chance, (0.01, 0.05)), board=board)
        | signal(Measure.MEMORY_COPY, draw(chance, (0.2, 0.6)))
        | traffic(Measure.NVLINK, draw(chance, (1e9, 1e11)))
        | traffic(Measure.PCIE, draw(chance, (5e7, 5e9)))
    )


def held_by(
    numbers: Sequence[int],
    *,
    owner: Workload | None = JOB,
    board: Board = H100,
    share: str = "exclusive",
    mig: str = "",
) -> list[AllocationKey]:
    return [
        AllocationKey(
            f"GPU-{number}",
            mig,
            Container("team", f"train-{number // 8}", "", "main", owner, (), AT - DAY),
            f"node-{number // 8}",
            str(number % 8),
            board.name,
            share,
        )
        for number in numbers
    ]


def learned(board: Board = H100, *, seed: int = 0) -> LoadedIdle:
    """From a fleet of this model: some wait for requests with a model loaded, some work, some sleep."""
    chance = np.random.default_rng((99, seed))
    loaded = [gpu(0.0, draw(chance, board.loaded), board=board) for _ in range(30)]
    asleep = [gpu(0.0, draw(chance, board.asleep), memory=2 * GIB, board=board) for _ in range(30)]
    asleep = [each | signal(Measure.SM_CLOCK, draw(chance, (2.1e8, 4.1e8))) for each in asleep]
    works = [training(chance, board) for _ in range(5)]
    rows = [*loaded, *asleep, *works]
    owners = held_by(range(100, 100 + len(rows)), owner=SERVER, board=board)
    history = VerdictHistory()
    for at in (AT - 2 * DAY, AT - 2 * DAY + EVERY):
        _, history = judge(table_of(*rows, allocations=owners, at=at), RULES, history, now=at)
    return history.loaded_idle


def judge_windows(
    *windows: Sequence[Stats],
    held: Sequence[AllocationKey] | None = None,
    known: LoadedIdle | None = None,
    rules: Rules = RULES,
    history: VerdictHistory | None = None,
) -> VerdictTable:
    """The verdicts of the last cycle; what the others showed comes before."""
    history = history or VerdictHistory(loaded_idle=known or LoadedIdle())
    for number, rows in enumerate(windows):
        at = AT + EVERY * (number - len(windows) + 1)
        table = table_of(*rows, allocations=held or held_by(range(len(rows))), at=at)
        verdicts, history = judge(table, rules, history, now=at)
    return verdicts


def lasting(
    rows: Sequence[Stats] | Callable[[int], Sequence[Stats]], minutes: float, *, before: Sequence[Sequence[Stats]] = ()
) -> list[Sequence[Stats]]:
    """Windows that together cover these minutes without a gap."""
    count = round((minutes * 60 - WINDOW) / EVERY) + 1
    return [*before, *(rows(number) if callable(rows) else rows for number in range(count))]


def names(verdicts: VerdictTable) -> list[Signature]:
    return [SIGNATURES[code] for code in verdicts.signature]


def add(rows: Sequence[Stats], further: Stats) -> list[Stats]:
    return [{**row, **further} for row in rows]


# Stalled.


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_gang_that_waits_for_itself_for_half_an_hour_is_stalled(board: Board, seed: int):
    chance = np.random.default_rng(seed)
    rows = [waiting(chance, board) | STILL for _ in range(8)]
    held, known = held_by(range(8), board=board), learned(board, seed=seed)
    verdicts = judge_windows(*lasting(rows, 30), held=held, known=known)
    assert set(names(verdicts)) == {Signature.STALLED}
    assert {ACTIVITIES[code] for code in verdicts.activity} == {Activity.ACTIVE}
    assert {STEPS[code] for code in verdicts.step} == {Step.NOTICE}
    assert verdicts.ineffective_since.tolist() == [AT - 1800] * 8
    assert Signature.STALLED not in names(judge_windows(*lasting(rows, 25), held=held, known=known))


LEVEL = 112.0 + 0.1 * (H100.limit - 112.0)  # about what `learned` gives


def spinning(*watts: float) -> list[Stats]:
    return [gpu(1.0, each) | STILL for each in watts]


def test_the_mean_of_a_gang_must_be_at_the_level_and_a_hot_board_may_be_three_per_cent_above_it():
    def judge_last(*watts: float) -> list[Signature]:
        return names(judge_windows(*lasting(spinning(*watts), 150), known=learned()))

    assert judge_last(*[140.0] * 7, LEVEL + 15) == [Signature.STALLED] * 8
    assert Signature.STALLED not in judge_last(*[140.0] * 7, LEVEL + 40)  # one computes
    assert Signature.STALLED not in judge_last(*[LEVEL + 6] * 8)
    assert Signature.STALLED not in judge_last(LEVEL + 15, LEVEL - 4)


def test_a_freeze_goes_on_at_the_power_at_which_it_began_though_the_level_is_passed():
    first, later, hot = (spinning(*[watts] * 4) for watts in (LEVEL - 5, LEVEL + 6, LEVEL + 25))
    known = learned()
    assert set(names(judge_windows(first, *lasting(later, 25), known=known))) == {Signature.STALLED}
    assert Signature.STALLED not in names(judge_windows(*lasting(later, 150), known=known))
    assert Signature.STALLED not in names(judge_windows(*lasting(first, 60), hot, known=known))
    gone = spinning(*[LEVEL + 25] * 4)
    assert Signature.STALLED not in names(judge_windows(first, gone, *lasting(later, 150), known=known))


def test_a_gang_without_witnesses_on_the_host_is_stalled_after_two_hours():
    rows = [waiting(np.random.default_rng(3), watts=130.0)] * 8
    assert set(names(judge_windows(*lasting(rows, 120), known=learned()))) == {Signature.STALLED}
    assert Signature.STALLED not in names(judge_windows(*lasting(rows, 115), known=learned()))
    half = add(rows, {(Measure.DISK, stat): 0.0 for stat in Stat})  # the network is not measured
    assert Signature.STALLED not in names(judge_windows(*lasting(half, 115), known=learned()))


@pytest.mark.parametrize(
    "works",
    [host(5e6, 0), host(0, 2e5), {(Measure.DISK, Stat.PEAK): 5e6}],
    ids=["disk", "network", "disk of one pod, others unknown"],
)
def test_a_gang_whose_pods_read_or_write_is_never_stalled(works: Stats):
    rows = add([waiting(np.random.default_rng(3), watts=130.0)] * 8, works)
    assert Signature.STALLED not in names(judge_windows(*lasting(rows, 150), known=learned()))


def test_a_gang_that_waited_for_the_host_has_stood_still_only_since_the_host_does():
    waits = [waiting(np.random.default_rng(3), watts=130.0)] * 8
    busy, still = lasting(add(waits, host(5e6)), 180), [add(waits, STILL)] * 6
    assert Signature.STALLED not in names(judge_windows(*busy, *still[:-1], known=learned()))
    verdicts = judge_windows(*busy, *still, known=learned())
    assert set(names(verdicts)) == {Signature.STALLED}
    assert verdicts.ineffective_since.tolist() == [AT - 1800] * 8


@pytest.mark.parametrize("others", [1, 4, 7])
def test_silent_gpus_of_a_stalled_gang_are_idle_and_the_others_stalled(others: int):
    chance = np.random.default_rng(others)
    rows = [waiting(chance, watts=130.0)] * others + [silent(chance)] * (8 - others)
    verdicts = judge_windows(*lasting(add(rows, STILL), 45, before=[[training(chance)] * 8]), known=learned())
    assert names(verdicts)[:others] == [Signature.STALLED] * others
    assert names(verdicts)[others:] == [Signature.HUNG] * (8 - others)
    (signature,) = judge_workloads(verdicts, RULES).signature
    assert SIGNATURES[signature] is Signature.STALLED


@pytest.mark.parametrize(
    "row",
    [
        gpu(1.0, 130.0) | profiled(sm=0.15) | {(Measure.POWER, Stat.PEAK): 200.0},
        gpu(1.0, 130.0) | profiled(sm=0.6),
        gpu(1.0, 130.0) | signal(Measure.DRAM, 0.001) | signal(Measure.ENGINE, 1.0),
    ],
    ids=["SMs and DRAM", "power and DRAM", "power and DRAM without SMs"],
)
def test_two_signs_of_waiting_are_enough(row: Stats):
    verdicts = judge_windows(*lasting([row | STILL] * 4, 30), known=learned())
    assert set(names(verdicts)) == {Signature.STALLED}


@pytest.mark.parametrize(
    "row",
    [
        gpu(1.0, 130.0) | {(Measure.MEMORY_COPY, Stat.PEAK): np.nan},
        gpu(1.0, 130.0) | {(Measure.POWER, Stat.PEAK): 200.0},
        gpu(1.0, 130.0) | {(Measure.POWER, stat): np.nan for stat in Stat},
        gpu(1.0, 130.0) | {(Measure.CORE, Stat.SPREAD): np.nan},
        gpu(1.0, 130.0) | {(Measure.CORE, Stat.COUNT): np.nan},
    ],
    ids=["power alone", "copies alone", "no power", "spread unknown", "samples unknown"],
)
def test_one_sign_is_not_enough_and_unknown_is_no_sign(row: Stats):
    assert Signature.STALLED not in names(judge_windows(*lasting([row | STILL] * 4, 150), known=learned()))


PROFILED_SIGNS = profiled(sm=0.15, dram=0.001)


@pytest.mark.parametrize(
    "row",
    [
        gpu(1.0, 300.0) | PROFILED_SIGNS,
        gpu(1.0, 130.0) | PROFILED_SIGNS | signal(Measure.TENSOR, 0.02),
        gpu(1.0, 130.0) | PROFILED_SIGNS | signal(Measure.DRAM, 0.04),
        gpu(1.0, 130.0) | {(Measure.SM_ACTIVE, Stat.PEAK): 0.15} | signal(Measure.TENSOR, 0.0) | COPIES,
        gpu(1.0, 130.0) | traffic(Measure.PCIE, 5e7),
        gpu(1.0, 130.0) | traffic(Measure.NVLINK, 5e9),
        gpu(1.0, 130.0) | {(Measure.DECODER, Stat.PEAK): 0.3},
        gpu(1.0, 130.0) | signal(Measure.DRAM, 0.0) | signal(Measure.ENGINE, 0.0),
        gpu(0.99, 130.0, spread=0.012) | {(Measure.CORE, Stat.COUNT): 9.0},
        gpu(0.96, 130.0, spread=0.009),
        gpu(1.0, 130.0) | signal(Measure.MEMORY_USED, 60 * GIB, 62 * GIB),
    ],
    ids=[
        *("power of a working GPU", "tensor activity", "DRAM activity", "copies", "PCIe", "NVLink", "video"),
        *("broken profiling", "utilization varies", "some sample below 95 %", "memory varies"),
    ],
)
def test_two_signs_do_not_count_if_one_signal_shows_work(row: Stats):
    assert Signature.STALLED not in names(judge_windows(*lasting([row | STILL] * 4, 150), known=learned()))


def test_before_power_is_learned_that_of_a_working_gpu_is_known_by_its_model():
    row = gpu(1.0, 450.0) | PROFILED_SIGNS | STILL
    assert Signature.STALLED not in names(judge_windows(*lasting([row] * 4, 150)))


def test_links_are_a_sign_only_where_they_were_measured_before():
    row = gpu(1.0, 130.0) | {(Measure.MEMORY_COPY, Stat.PEAK): np.nan} | STILL
    before = gpu(0.97, 500.0, spread=0.02) | traffic(Measure.NVLINK, 3e10)
    known = learned()
    assert Signature.STALLED in names(judge_windows(*lasting([row] * 4, 40, before=[[before] * 4]), known=known))
    assert Signature.STALLED not in names(judge_windows(*lasting([row] * 4, 400), known=known))


def test_memory_copy_is_no_sign_if_the_setting_says_so():
    signatures = RULES.signatures
    stalled = signatures.stalled.model_copy(update={"uses_memory_copy": False})
    rules = RULES.model_copy(update={"signatures": signatures.model_copy(update={"stalled": stalled})})
    rows = [gpu(1.0, 130.0) | STILL] * 4
    assert Signature.STALLED not in names(judge_windows(*lasting(rows, 150), known=learned(), rules=rules))
    assert Signature.STALLED in names(judge_windows(*lasting(rows, 150), known=learned()))


REQUESTS = {(Measure.RUNNING, Stat.LOWEST): 32.0, (Measure.TOKENS, Stat.COUNT): 0.0}


def test_a_server_whose_requests_stand_still_is_stalled_on_one_gpu():
    frozen = [gpu(1.0, 128.0) | REQUESTS]
    held, known = held_by([0], owner=SERVER), learned()
    assert names(judge_windows(*lasting(add(frozen, STILL), 30), held=held, known=known)) == [Signature.STALLED]
    assert names(judge_windows(*lasting(add(frozen, host(0, 9e5)), 120), held=held, known=known)) == [Signature.STALLED]
    assert names(judge_windows(*lasting(frozen, 115), held=held, known=known)) != [Signature.STALLED]


@pytest.mark.parametrize("busy", [0.0, 0.003, 0.3])
def test_a_gauge_that_kept_its_last_value_on_a_gpu_that_rests_is_no_frozen_server(busy: float):
    """All clients have gone, and the engine has stopped stepping: its gauge says for ever that requests run."""
    rows = [gpu(busy, 115.0) | REQUESTS | STILL]
    assert names(judge_windows(*lasting(rows, 150), held=held_by([0], owner=SERVER), known=learned())) != [
        Signature.STALLED
    ]


@pytest.mark.parametrize(("mig", "share"), [("3", "mig"), ("", "time-sliced"), ("", "hami")])
def test_a_server_on_a_part_of_a_gpu_is_stalled_without_a_look_at_power(mig: str, share: str):
    rows = [gpu(1.0, 600.0) | REQUESTS | STILL]
    held = held_by([0], owner=SERVER, mig=mig, share=share)
    assert names(judge_windows(*lasting(rows, 30), held=held)) == [Signature.STALLED]


@pytest.mark.parametrize(
    ("requests", "watts"),
    [
        ({(Measure.RUNNING, Stat.LOWEST): 0.0}, 128.0),
        ({(Measure.RUNNING, Stat.LOWEST): np.nan}, 128.0),
        ({(Measure.TOKENS, Stat.COUNT): 4.0}, 128.0),
        ({(Measure.TOKENS, Stat.COUNT): np.nan}, 128.0),
        ({}, 420.0),
    ],
    ids=["not always running", "requests unknown", "tokens come", "tokens unknown", "a long prefill draws power"],
)
def test_a_server_is_not_stalled_without_proof_of_frozen_requests(requests: Stats, watts: float):
    rows = [gpu(1.0, watts) | REQUESTS | requests | STILL]
    held = held_by([0], owner=SERVER)
    assert Signature.STALLED not in names(judge_windows(*lasting(rows, 150), held=held, known=learned()))


def test_a_freeze_ends_with_any_work_and_begins_again():
    chance = np.random.default_rng(5)
    frozen = add([waiting(chance, watts=130.0)] * 8, STILL)
    windows = [*lasting(frozen, 60), [training(chance)] * 8, *lasting(frozen, 25)]
    assert Signature.STALLED not in names(judge_windows(*windows, known=learned()))
    verdicts = judge_windows(*windows, frozen, known=learned())
    assert set(names(verdicts)) == {Signature.STALLED}
    assert verdicts.ineffective_since.tolist() == [AT - 1800] * 8


def test_a_freeze_begins_again_if_its_power_changes():
    low, high = ([gpu(1.0, watts) | STILL] * 4 for watts in (120.0, 150.0))
    assert Signature.STALLED not in names(judge_windows(*lasting(low, 25), *lasting(high, 25), known=learned()))


def test_after_a_restart_of_the_analyzer_nothing_is_stalled_before_it_was_seen_again_for_as_long():
    rows = add([waiting(np.random.default_rng(5), watts=130.0)] * 8, STILL)
    known = learned()
    assert set(names(judge_windows(*lasting(rows, 60), known=known))) == {Signature.STALLED}
    # What the ledger restores has neither the freeze nor the power.
    assert Signature.STALLED not in names(judge_windows(*lasting(rows, 25), history=VerdictHistory()))
    assert Signature.STALLED not in names(judge_windows(*lasting(rows, 150), history=VerdictHistory()))


# Loaded idle power is learned by model.


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_loaded_idle_power_is_that_of_gpus_that_hold_memory_at_full_clock(board: Board):
    watts = learned(board).models[board.name].watts
    assert board.loaded[0] <= watts <= sum(board.loaded) / 2


def test_a_gpu_asleep_in_p8_is_not_learned():
    asleep = gpu(0.0, 10.0, board=T4) | signal(Measure.SM_CLOCK, 3e8)
    works = gpu(0.9, 60.0, spread=0.02, board=T4) | signal(Measure.MEMORY_COPY, 0.4)
    held = held_by(range(41), owner=SERVER, board=T4)
    history = VerdictHistory()
    _, history = judge(table_of(*[asleep] * 40, allocations=held[:40]), RULES, history, now=AT)
    assert np.isnan(history.loaded_idle.models[T4.name].watts)  # no clock of a working one is known
    table = table_of(*[asleep] * 40, works, allocations=held, at=AT + EVERY)
    _, history = judge(table, RULES, history, now=AT + EVERY)
    assert np.isnan(history.loaded_idle.models[T4.name].watts)


@pytest.mark.parametrize(
    "change",
    [
        {(Measure.MEMORY_USED, stat): 0.0 for stat in Stat},
        {(Measure.SM_CLOCK, stat): np.nan for stat in Stat},
        {(Measure.POWER, stat): np.nan for stat in Stat},
        {(Measure.CORE, Stat.PEAK): 0.02},
    ],
    ids=["no memory held", "clock unknown", "power unknown", "worked in one sample"],
)
def test_what_is_not_known_to_be_loaded_idle_is_not_learned(change: Stats):
    idle = gpu(0.0, 120.0) | change
    works = gpu(0.9, 500.0, spread=0.02)
    table = table_of(*[idle] * 40, works, allocations=held_by(range(41), owner=SERVER))
    _, history = judge(table, RULES, VerdictHistory(), now=AT)
    assert np.isnan(history.loaded_idle.models[H100.name].watts)


def test_power_is_known_from_twenty_windows_on_and_what_is_kept_is_bounded():
    works = gpu(0.9, 500.0, spread=0.02)
    history = VerdictHistory()
    for number in range(20):
        assert not history.loaded_idle.models or np.isnan(history.loaded_idle.models[H100.name].watts)
        at = AT + number * EVERY
        table = table_of(gpu(0.0, 120.0), works, allocations=held_by([0, 1], owner=SERVER), at=at)
        _, history = judge(table, RULES, history, now=at)
    assert history.loaded_idle.models[H100.name].watts == pytest.approx(120)
    many = held_by(range(500), owner=SERVER)
    for number in range(30):
        at = AT + DAY + number * EVERY
        _, history = judge(table_of(*[gpu(0.0, 125.0)] * 500, allocations=many, at=at), RULES, history, now=at)
    assert len(history.loaded_idle.models[H100.name].windows) == 400


def test_until_the_power_of_a_model_is_learned_power_is_no_sign():
    row = gpu(1.0, 130.0) | STILL  # copies of 0 are the only other sign
    assert Signature.STALLED not in names(judge_windows(*lasting([row] * 4, 150)))
    assert Signature.STALLED in names(judge_windows(*lasting([row | profiled(sm=0.15)] * 4, 60)))


# What must not be called stalled: two and a half hours of it, with a still host.


def one_works(chance: Chance) -> Callable[[int], list[Stats]]:
    """Evaluation or generation on rank 0, the others in a barrier."""
    works = gpu(draw(chance, (0.2, 0.99)), draw(chance, (200, 600)), spread=draw(chance, (0.0, 0.2)))
    works = works | signal(Measure.MEMORY_COPY, draw(chance, (0.02, 0.5)))
    others = [waiting(chance) for _ in range(7)]
    return lambda _: [works, *others]


def tiny_kernels(count: int) -> Callable[[Chance], Callable[[int], list[Stats]]]:
    """Reinforcement learning, batch size 1, graph networks: 100 % at low power. Some sample of ten minutes shows a
    copy, and launches are traffic."""

    def make(chance: Chance) -> Callable[[int], list[Stats]]:
        has_profiling, has_links = bool(chance.integers(2)), bool(chance.integers(2))

        def one() -> Stats:
            row = gpu(draw(chance, (0.97, 1.0)), draw(chance, (115, 230)), spread=draw(chance, (0.0, 0.01)))
            row |= signal(Measure.MEMORY_COPY, draw(chance, (0.0, 0.04)), draw(chance, (0.01, 0.06)))
            if has_profiling:
                row |= profiled(
                    sm=draw(chance, (0.03, 0.4)), tensor=draw(chance, (0, 0.02)), dram=draw(chance, (0.006, 0.08))
                )
            if has_links:
                row |= traffic(Measure.PCIE, draw(chance, (1.5e7, 4e8)))
            return row

        return lambda _: [one() for _ in range(count)]

    return make


def expert_parallel(chance: Chance) -> Callable[[int], list[Stats]]:
    """Bound by all-to-all: little computing, much traffic."""
    return lambda _: [
        gpu(draw(chance, (0.97, 1.0)), draw(chance, (150, 320)), spread=draw(chance, (0, 0.008)))
        | profiled(sm=draw(chance, (0.1, 0.3)), tensor=draw(chance, (0.0, 0.05)), dram=draw(chance, (0.004, 0.1)))
        | signal(Measure.MEMORY_COPY, draw(chance, (0.0, 0.1)))
        | traffic(Measure.NVLINK, draw(chance, (2e9, 1e11)))
        for _ in range(8)
    ]


def in_turn(chance: Chance) -> Callable[[int], list[Stats]]:
    """Rollout and training on the same GPUs: half an hour of one is much."""
    turn = int(chance.integers(2, 5))
    rollout, trains = [waiting(chance, watts=130.0)] * 8, [training(chance)] * 8
    return lambda number: trains if number % (turn + 1) == turn else rollout


def decoding(chance: Chance) -> Callable[[int], list[Stats]]:
    return lambda _: [
        gpu(draw(chance, (0.97, 1.0)), draw(chance, (180, 400)))
        | signal(Measure.MEMORY_COPY, draw(chance, (0.3, 0.9)))
        | profiled(sm=draw(chance, (0.15, 0.5)), tensor=draw(chance, (0.0, 0.1)), dram=draw(chance, (0.3, 0.8)))
        for _ in range(8)
    ]


def slow_loader(chance: Chance) -> Callable[[int], list[Stats]]:
    return lambda _: [
        gpu(draw(chance, (0.05, 0.6)), draw(chance, (120, 300)), spread=draw(chance, (0.1, 0.4)))
        | signal(Measure.MEMORY_COPY, draw(chance, (0.0, 0.2)))
        for _ in range(8)
    ]


def compiling(chance: Chance) -> Callable[[int], list[Stats]]:
    """Compilation leaves the GPU to rest, autotuning uses it fully; all ranks do it for themselves."""
    tunes = [gpu(draw(chance, (0.3, 1.0)), draw(chance, (150, 500)), spread=draw(chance, (0.03, 0.3)))] * 8
    rests = [silent(chance)] * 8
    return lambda number: tunes if number % 2 else rests


def capped(board: Board, limit: float) -> Callable[[Chance], Callable[[int], list[Stats]]]:
    """Working below a lowered limit, or a small card."""

    def make(chance: Chance) -> Callable[[int], list[Stats]]:
        row = gpu(draw(chance, (0.98, 1.0)), limit * draw(chance, (0.9, 1.0)), spread=0.003, board=board)
        row |= signal(Measure.MEMORY_COPY, draw(chance, (0.05, 0.5))) | signal(Measure.POWER_LIMIT, limit)
        return lambda _: [row] * 8

    return make


def broken_counters(chance: Chance) -> Callable[[int], list[Stats]]:
    """After an XID all profiling fields read 0; power and utilization go on."""
    watts = draw(chance, (250, 650))
    row = gpu(1.0, watts) | profiled(sm=0.0, engine=0.0) | signal(Measure.MEMORY_COPY, 0.0)
    del row[Measure.SM_ACTIVE, Stat.PEAK]  # 0 is not reported
    return lambda number: [row | (traffic(Measure.NVLINK, 1e10) if not number else {})] * 8


def broken_counters_without_power(chance: Chance) -> Callable[[int], list[Stats]]:
    make = broken_counters(chance)
    unknown = {(Measure.POWER, stat): np.nan for stat in Stat}
    return lambda number: add(make(number), unknown)


def apu(chance: Chance) -> Callable[[int], list[Stats]]:
    """AMD: 54 W and 100 % with and after the work, copies and profiling unknown."""
    row = gpu(1.0, draw(chance, (50, 60)), board=H100._replace(limit=140))
    row = {key: value for key, value in row.items() if key[0] not in (Measure.MEMORY_COPY, Measure.SM_CLOCK)}
    return lambda _: [row] * 2


SCENES: dict[str, Callable[[Chance], Callable[[int], Sequence[Stats]]]] = {
    "one rank works while the others wait in a barrier": one_works,
    "tiny kernels on one GPU": tiny_kernels(1),
    "tiny kernels on eight GPUs": tiny_kernels(8),
    "expert-parallel training bound by all-to-all": expert_parallel,
    "rollout and training in turn": in_turn,
    "memory-bound decoding": decoding,
    "a slow loader": slow_loader,
    "compiling and autotuning": compiling,
    "a power-capped GPU": capped(H100, 250),
    "a T4": capped(T4, 70),
    "an L4": capped(L4, 72),
    "profiling counters that read 0 after an XID": broken_counters,
    "the same where power is not known": broken_counters_without_power,
    "an AMD APU whose reading stays": apu,
}


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
@pytest.mark.parametrize("seed", SEEDS)
def test_work_is_never_called_stalled(scene: Callable[[Chance], Callable[[int], Sequence[Stats]]], seed: int):
    make = scene(np.random.default_rng(seed))
    windows = lasting(lambda number: add(make(number), STILL), 150)
    board = T4 if scene is SCENES["a T4"] else L4 if scene is SCENES["an L4"] else H100
    held = held_by(range(len(windows[0])), board=board)
    verdicts = judge_windows(*windows, held=held, known=learned(board, seed=seed))
    assert Signature.STALLED not in names(verdicts)


@pytest.mark.parametrize("use", [host(3e7, 2e3), host(100, 5e7)], ids=["writes a checkpoint", "downloads a model"])
@pytest.mark.parametrize("seed", SEEDS)
def test_ranks_that_wait_while_the_host_works_are_not_stalled(seed: int, use: Stats):
    """A checkpoint, a data set, a model: rank 0 is silent, and its host is not."""
    chance = np.random.default_rng(seed)
    rows = [silent(chance), *(waiting(chance) for _ in range(7))]
    assert Signature.STALLED not in names(judge_windows(*lasting(add(rows, use), 150), known=learned()))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_download_of_90_minutes_that_nobody_measures_is_not_a_stall(seed: int):
    chance = np.random.default_rng(seed)
    rows = [silent(chance), *(waiting(chance) for _ in range(7))]
    assert Signature.STALLED not in names(judge_windows(*lasting(rows, 90), known=learned()))


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "LeaderWorkerSet", "RayCluster", "Pod", "NIMService"])
@pytest.mark.parametrize("seed", SEEDS)
def test_an_idle_server_whose_ranks_wait_in_a_broadcast_is_not_stalled(kind: str, seed: int):
    chance = np.random.default_rng(seed)
    rows = [silent(chance), *(waiting(chance, watts=draw(chance, (109, 140))) for _ in range(7))]
    held = held_by(range(8), owner=Workload(kind, "team", "server"))
    windows = lasting(add(rows, STILL), 150)
    assert Signature.STALLED not in names(judge_windows(*windows, held=held, known=learned()))
    no_requests = add(rows, STILL | {(Measure.RUNNING, Stat.LOWEST): 0.0, (Measure.TOKENS, Stat.COUNT): 0.0})
    jobs = held_by(range(8))
    assert Signature.STALLED not in names(judge_windows(*lasting(no_requests, 150), held=jobs, known=learned()))


SILENCE = {(measure, Stat.COUNT): 0.0 for measure in (Measure.REQUESTS, Measure.TOKENS)} | {
    (measure, stat): 0.0 for measure in (Measure.RUNNING, Measure.WAITING) for stat in (Stat.LOWEST, Stat.PEAK)
}
PROVEN_SILENCE = SILENCE | {(Measure.SILENT, Stat.LOWEST): 1.0}


@pytest.mark.parametrize("silent_ranks", [0, 1])
@pytest.mark.parametrize("seed", SEEDS)
def test_ranks_that_wait_for_requests_are_no_requests_ineffective_and_still_active(silent_ranks: int, seed: int):
    chance = np.random.default_rng(seed)
    ranks = [silent(chance) for _ in range(silent_ranks)]
    ranks += [waiting(chance, watts=draw(chance, (109, 140))) for _ in range(8 - silent_ranks)]
    held = held_by(range(8), owner=SERVER)
    served = add([training(chance)] * 8, SILENCE | {(Measure.REQUESTS, Stat.COUNT): 9.0})
    windows = [served, *lasting(add(ranks, PROVEN_SILENCE), 150)]
    verdicts = judge_windows(*windows, held=held, known=learned())
    spinning_rows = range(silent_ranks, 8)
    assert set(names(verdicts)) == {Signature.NO_REQUESTS}
    assert {ACTIVITIES[verdicts.activity[row]] for row in spinning_rows} == {Activity.ACTIVE}
    assert {STEPS[verdicts.step[row]] for row in spinning_rows} == {Step.NOTICE}
    assert {STEPS[verdicts.step_by_silence[row]] for row in spinning_rows} == {Step.NOTICE}
    assert verdicts.ineffective_since[silent_ranks:].tolist() == [AT - 150 * 60] * len(spinning_rows)
    assert np.isnan(verdicts.ineffective_since[:silent_ranks]).all()
    table = judge_workloads(verdicts, RULES)
    assert (ACTIVITIES[table.activity[0]], SIGNATURES[table.signature[0]]) == (Activity.ACTIVE, Signature.NO_REQUESTS)
    text = " ".join(explain_row(verdicts, 7, rules=RULES))
    assert "no request since" in text
    assert "ineffective" in text


@pytest.mark.parametrize(
    "change",
    [
        SILENCE | {(Measure.SILENT, Stat.LOWEST): 0.0},
        {(Measure.SILENT, Stat.LOWEST): np.nan},
        host(5e6, 0),
        {(Measure.TENSOR, Stat.PEAK): 0.2},
        signal(Measure.POWER, 400.0),
        signal(Measure.CORE, 0.7, 0.99, spread=0.1),
    ],
    ids=["silence is not proven", "not known", "reads", "computes", "draws power", "varies"],
)
def test_a_server_whose_gpus_may_work_is_only_said_to_have_no_requests(change: Stats):
    rows = add([waiting(np.random.default_rng(4), watts=130.0)] * 8, PROVEN_SILENCE | STILL | change)
    verdicts = judge_windows(*lasting(rows, 150), held=held_by(range(8), owner=SERVER), known=learned())
    assert set(names(verdicts)).isdisjoint({Signature.NO_REQUESTS, Signature.STALLED})
    assert np.isnan(verdicts.ineffective_since).all()


def test_a_workload_with_one_working_gpu_is_active_and_a_server_on_one_gpu_may_compute():
    wait, work = waiting(np.random.default_rng(4), watts=130.0), training(np.random.default_rng(4))
    one_works = add([*[wait] * 7, work], PROVEN_SILENCE | STILL)
    verdicts = judge_windows(*lasting(one_works, 150), held=held_by(range(8), owner=SERVER), known=learned())
    assert Signature.NO_REQUESTS not in names(verdicts)
    alone = add([wait], PROVEN_SILENCE | STILL)
    verdicts = judge_windows(*lasting(alone, 150), held=held_by([0], owner=SERVER), known=learned())
    assert Signature.NO_REQUESTS not in names(verdicts)
    assert np.isnan(verdicts.ineffective_since).all()


def test_never_lets_ranks_that_wait_for_requests_beyond_a_notice():
    """Whoever reads the queue of another node, or compiles, spins in the same way."""
    rows = add([waiting(np.random.default_rng(4), watts=130.0)] * 8, PROVEN_SILENCE | STILL)
    proven = add(rows, {(Measure.BUSY, Stat.MEAN): 1.0})
    for windows in (rows, proven):
        verdicts = judge_windows(*lasting(windows, 600), held=held_by(range(8), owner=SERVER), known=learned())
        assert {STEPS[code] for code in (*verdicts.step, *verdicts.step_by_silence)} == {Step.NOTICE}


@pytest.mark.parametrize("owner", [None, Workload("Unheard", "team", "x")], ids=["no owner", "unknown kind"])
def test_what_may_serve_is_not_a_gang(owner: Workload | None):
    rows = add([waiting(np.random.default_rng(5), watts=130.0)] * 8, STILL)
    held = held_by(range(8), owner=owner)
    assert Signature.STALLED not in names(judge_windows(*lasting(rows, 150), held=held, known=learned()))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stop_below_the_time_of_the_watchdogs_is_not_a_stall(seed: int):
    chance = np.random.default_rng(seed)
    minutes = float(chance.uniform(11, 27))
    windows = [*lasting([training(chance)] * 8, 60), *lasting(add([waiting(chance)] * 8, STILL), minutes)]
    assert Signature.STALLED not in names(judge_windows(*windows, known=learned()))


def test_one_gpu_alone_is_never_a_gang():
    row = waiting(np.random.default_rng(5), watts=130.0) | STILL
    assert Signature.STALLED not in names(judge_windows(*lasting([row], 150), known=learned()))
    two_containers = held_by([0, 0])
    two_containers[1] = replace(two_containers[1], container=replace(two_containers[1].container, name="other"))
    windows = lasting([row, row], 150)
    assert Signature.STALLED not in names(judge_windows(*windows, held=two_containers, known=learned()))


@pytest.mark.parametrize(("mig", "share"), [("3", "mig"), ("", "time-sliced")])
def test_a_gang_with_a_part_of_a_gpu_is_not_judged(mig: str, share: str):
    rows = add([waiting(np.random.default_rng(5), watts=130.0)] * 4, STILL)
    held = [*held_by(range(3)), *held_by([3], mig=mig, share=share)]
    assert Signature.STALLED not in names(judge_windows(*lasting(rows, 150), held=held, known=learned()))


@pytest.mark.parametrize(
    "without",
    [{(Measure.PROCESSES, stat): 0.0 for stat in (Stat.PEAK, Stat.LAST)}, signal(Measure.MEMORY_USED, 4 << 20)],
    ids=["processes", "memory"],
)
def test_gpus_that_read_100_per_cent_without_a_process_are_not_a_gang(without: Stats):
    """After a collective was killed, until they are reset."""
    rows = add([waiting(np.random.default_rng(5), watts=130.0)] * 4, STILL | without)
    assert Signature.STALLED not in names(judge_windows(*lasting(rows, 150), known=learned()))


def test_one_gpu_of_unknown_use_keeps_a_gang_from_being_called_stalled():
    rows = add([waiting(np.random.default_rng(5), watts=130.0)] * 7, STILL)
    assert Signature.STALLED not in names(judge_windows(*lasting([*rows, STILL], 150), known=learned()))


# What is said about it.


def explain(verdicts: VerdictTable, language: str = "en") -> str:
    return "\n".join(judge_workloads(verdicts, RULES).verdict(0, language=language).reasons)


def test_the_reasons_say_since_when_what_it_cost_and_which_ranks_differ():
    chance = np.random.default_rng(7)
    rows = add([waiting(chance, watts=130.0)] * 15 + [silent(chance)], STILL)
    verdicts = judge_windows(*lasting(rows, 60), known=learned())
    text = explain(verdicts)
    assert "15.0 GPU-hours so far" in text
    assert "15 GPUs of it run a kernel and 1 is silent" in text
    assert "train-1 on node-1 GPU 7" in text
    assert "kubectl exec -n team train-1 -c main -- py-spy dump --pid PID" in text
    assert "15.0 GPU 小时" in explain(verdicts, "zh")


def test_names_of_tenants_are_no_commands_of_a_shell():
    rows = add([waiting(np.random.default_rng(5), watts=130.0)] * 2, STILL)
    held = held_by(range(2))
    for number in range(2):
        container = replace(held[number].container, pod="train; rm -rf ~", name="$(id)")
        held[number] = replace(held[number], container=container)
    text = explain(judge_windows(*lasting(rows, 60), held=held, known=learned()))
    assert "kubectl exec -n team 'train; rm -rf ~' -c '$(id)' -- py-spy dump" in text


def test_a_single_rank_that_spins_is_the_odd_one_among_silent_ones():
    chance = np.random.default_rng(7)
    rows = add([silent(chance)] * 3 + [waiting(chance, watts=130.0)] + [silent(chance)] * 4, STILL)
    assert "Look at the fewer first: train-0 on node-0 GPU 3." in explain(
        judge_windows(*lasting(rows, 60), known=learned())
    )


def test_the_reasons_of_a_row_name_what_was_measured():
    row = gpu(1.0, 130.0) | profiled(sm=0.15) | STILL
    text = "\n".join(explain_row(judge_windows(*lasting([row] * 2, 60), known=learned()), 0, rules=RULES))
    for said in ("for 60 minutes", "130 W of 700 W", "SM activity was 15.0%", "0.2 kB/s on disks and 3.0 kB/s"):
        assert said in text
    row = gpu(1.0, 128.0) | REQUESTS
    server = judge_windows(*lasting([row], 120), held=held_by([0], owner=SERVER), known=learned())
    text = "\n".join(explain_row(server, 0, rules=RULES))
    assert "Requests run in every sample (32 or more), and no token came" in text
    assert "so this took 2 hours to say" in text
