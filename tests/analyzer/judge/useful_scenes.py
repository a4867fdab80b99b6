"""Hours of workloads of several GPUs whose use is known: what works, stands still, is kept busy, or is idle.

Levels, their spread and the start of each phase are drawn from published ranges. `useful.py` makes the metrics of three
exporters of them, `test_useful.py` judges a cut, `python -m bench.useful` all.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np

GIB = float(1 << 30)
Chance = np.random.Generator
Range = tuple[float, float]


class Board(NamedTuple):
    """Watts of a model as published: nvidia-smi of loaded, stuck and working GPUs. What nobody has published is
    inferred, and marked so."""

    name: str
    limit: float
    bare: Range  # without a context
    loaded: Range
    stuck: Range  # above loaded
    working: Range
    clock: float = 1980  # MHz
    idle_clock: float = 0.0  # of a GPU in P8; 0: as above
    memory_gib: float = 79.0
    has_gpm: bool = False  # profiling fields without DCGM
    has_copies: bool = True  # memory copy utilization, and profiling


H100 = Board("NVIDIA H100 80GB HBM3", 700, (69, 74), (109, 137), (3, 40), (300, 690), has_gpm=True)
# Loaded: inferred from 69 to 72 W of a stuck one.
H100_PCIE = Board("NVIDIA H100 PCIe", 350, (45, 50), (52, 60), (10, 15), (180, 345), 1755, has_gpm=True)
H200 = Board("NVIDIA H200", 700, (76, 77), (113, 120), (3, 35), (300, 690), memory_gib=140.0, has_gpm=True)
# Stuck: inferred. 720 to 738 W were pasted around a stuck server; `around_a_stall` has them.
B200 = Board("NVIDIA B200", 1000, (140, 145), (192, 196), (10, 40), (500, 950), 1965, memory_gib=179.0, has_gpm=True)
# Loaded: inferred from 232 to 280 W of a stuck one.
GB200 = Board("NVIDIA GB200", 1200, (150, 160), (205, 235), (27, 45), (800, 1000), 1950, memory_gib=185.0, has_gpm=True)
# Loaded: inferred from 13 to 27 W of a stuck one.
GB10 = Board("NVIDIA GB10", 140, (4, 6), (8, 14), (5, 13), (40, 90), 2400, memory_gib=119.0)
A100 = Board("NVIDIA A100-SXM4-80GB", 400, (51, 60), (62, 75), (4, 25), (180, 400), 1410)
A100_PCIE = Board("NVIDIA A100 80GB PCIe", 300, (72, 76), (72, 80), (4, 20), (150, 300), 1410)
V100 = Board("Tesla V100-SXM2-32GB", 300, (39, 43), (48, 56), (10, 20), (180, 300), 1530, memory_gib=31.0)
V100_PCIE = Board("Tesla V100-PCIE-16GB", 250, (26, 27), (38, 41), (1, 7), (130, 245), 1380, memory_gib=15.5)
T4 = Board("Tesla T4", 70, (9, 11), (26, 30), (10, 14), (45, 70), 1590, memory_gib=15.0)
L4 = Board("NVIDIA L4", 72, (12, 16), (28, 33), (5, 12), (50, 72), 2040, memory_gib=22.0)
L40S = Board("NVIDIA L40S", 350, (30, 36), (76, 80), (14, 20), (160, 350), 2520, memory_gib=44.0)
# A loaded one rests in P8, and 150 W were pasted of a rank that waits.
RTX_3090 = Board("NVIDIA GeForce RTX 3090", 350, (24, 30), (16, 31), (120, 134), (330, 350), 1900, 210, 23.0)
RTX_PRO = Board("NVIDIA RTX PRO 6000 Blackwell", 600, (15, 25), (30, 45), (75, 90), (300, 590), 2400, memory_gib=95.0)
# AMD, shown by an exporter with DCGM's names: its reading stays after the work.
APU = Board("AMD Radeon 8060S", 120, (8, 12), (10, 15), (39, 44), (50, 58), 2900, memory_gib=96.0, has_copies=False)
BOARDS = (H100, H100_PCIE, H200, B200, GB200, GB10, A100, A100_PCIE, V100, V100_PCIE, T4, L4, L40S)
"""Those whose loaded idle power can be learned."""


class Truth(StrEnum):
    WORKS = "works"
    STALLED = "stalled"
    HELD = "kept busy"
    WAITS = "waits"  # busy without work, and not stuck: not to be called stalled
    IDLE = "idle"


class Place(StrEnum):
    GPU = "exclusive"
    MIG = "mig"
    MPS = "mps"
    SLICE = "time-sliced"


class Use(NamedTuple):
    """Of one GPU, or of a part of it: the mean of half a minute."""

    watts: float  # of the board
    core: float = 0.0
    spread: float = 0.0  # from one half of a minute to the next
    copy: float = 0.0
    sm: float = 0.0
    tensor: float = 0.0
    dram: float = 0.0
    pcie: float = 2e5  # bytes per second
    nvlink: float = 0.0
    memory: float = 60 * GIB
    processes: int = 1
    engine: float | None = None  # None: as the core
    outside: bool = False  # by a process of a container that does not hold the GPU
    paired: bool = False  # the same, of the pod that the holder names, and that names the holder


class Server(NamedTuple):
    """What it says of its requests."""

    running: int = 0
    tokens: float = 0.0  # per second
    asleep: bool = False


class Phase(NamedTuple):
    truth: Truth
    minutes: float
    uses: Sequence[Use]
    disk: float = 30.0  # bytes per second of each pod
    network: float = 100.0
    server: Server | None = None


class Scene(NamedTuple):
    name: str
    kind: str
    make: Callable[[Chance, Board], Sequence[Phase]]  # in turn, again and again
    board: Board = H100
    place: Place = Place.GPU
    pods: int = 1
    is_long: bool = False  # a day and a night, or three hours and a half
    has_video: bool = False  # of a MIG instance: its decoders are profiled, or it has no video engine


def draw(chance: Chance, between: Range) -> float:
    return float(chance.uniform(*between))


def waiting(chance: Chance, board: Board, count: int = 8) -> list[Use]:
    """In a collective that nobody joins: one kernel, the same on all boards."""
    core, sm, held = draw(chance, (0.99, 1.0)), draw(chance, (0.1, 0.24)), 0.7 * board.memory_gib * GIB
    watts = [draw(chance, board.loaded) + draw(chance, board.stuck) for _ in range(count)]
    return [Use(each, core, 0.002, sm=sm, memory=held) for each in watts]


def silent(chance: Chance, board: Board, count: int = 8) -> list[Use]:
    return [Use(draw(chance, board.loaded), memory=0.7 * board.memory_gib * GIB) for _ in range(count)]


def training(chance: Chance, board: Board, count: int = 8) -> list[Use]:
    return [
        Use(
            draw(chance, board.working),
            draw(chance, (0.9, 0.98)),
            draw(chance, (0.01, 0.05)),
            draw(chance, (0.2, 0.6)),
            sm=draw(chance, (0.6, 0.95)),
            tensor=draw(chance, (0.2, 0.6)),
            dram=draw(chance, (0.2, 0.5)),
            pcie=draw(chance, (5e7, 5e9)),
            nvlink=draw(chance, (1e9, 1e11)),
            memory=0.8 * board.memory_gib * GIB,
        )
        for _ in range(count)
    ]


WORK_DISK, WORK_NETWORK = (5e5, 5e7), (5e5, 5e7)
EVER = 10_000.0
Make = Callable[[Chance, Board], Sequence[Phase]]


def working(chance: Chance, board: Board, count: int, minutes: float = EVER) -> Phase:
    disk, network = draw(chance, WORK_DISK), draw(chance, WORK_NETWORK)
    return Phase(Truth.WORKS, minutes, training(chance, board, count), disk, network)


def quiet(chance: Chance) -> dict[str, float]:
    """Logs, heartbeats, scrapes of metrics."""
    return {"disk": draw(chance, (5, 600)), "network": draw(chance, (50, 9000))}


def stuck(count: int, silent_ones: int = 0) -> Make:
    """Trains, and stands still from some moment on."""

    def make(chance: Chance, board: Board) -> list[Phase]:
        waits = [*silent(chance, board, silent_ones), *waiting(chance, board, count - silent_ones)]
        first = working(chance, board, count, draw(chance, (20, 50)))
        return [first, Phase(Truth.STALLED, EVER, waits, **quiet(chance))]

    return make


def frozen(count: int) -> Make:
    """A server whose requests run and give no token; its clients ask again."""

    def make(chance: Chance, board: Board) -> list[Phase]:
        minutes, requests = draw(chance, (20, 50)), int(chance.integers(1, 60))
        serves = Phase(Truth.WORKS, minutes, _decode(chance, board, count), 100, 2e5, Server(requests, 900))
        waits = waiting(chance, board, count)
        if board is GB10:  # pasted: 95 to 96 %
            waits = [use._replace(core=draw(chance, (0.95, 0.96))) for use in waits]
        return [serves, Phase(Truth.STALLED, EVER, waits, **quiet(chance), server=Server(requests))]

    return make


def _decode(chance: Chance, board: Board, count: int) -> list[Use]:
    low, high = board.working
    return [
        Use(
            draw(chance, (0.6 * low + 0.4 * board.loaded[1], (low + high) / 2)),
            draw(chance, (0.97, 1.0)),
            0.004,
            draw(chance, (0.3, 0.9)),
            sm=draw(chance, (0.15, 0.5)),
            tensor=draw(chance, (0.0, 0.1)),
            dram=draw(chance, (0.3, 0.8)),
        )
        for _ in range(count)
    ]


def works(
    uses: Callable[[Chance, Board], Sequence[Use]], *, disk: Range = (5, 600), network: Range = (50, 9000)
) -> Make:
    """The same work all the time, by default with a still host."""
    return lambda chance, board: [
        Phase(Truth.WORKS, EVER, uses(chance, board), draw(chance, disk), draw(chance, network))
    ]


def _tiny(count: int) -> Callable[[Chance, Board], list[Use]]:
    """Reinforcement learning, batch size 1, graph networks."""
    return lambda chance, _: [
        Use(
            draw(chance, (115, 230)),
            draw(chance, (0.97, 1.0)),
            draw(chance, (0.0, 0.01)),
            draw(chance, (0.01, 0.05)),
            sm=draw(chance, (0.03, 0.4)),
            tensor=draw(chance, (0, 0.02)),
            dram=draw(chance, (0.006, 0.08)),
            pcie=draw(chance, (1.5e7, 4e8)),
        )
        for _ in range(count)
    ]


def _all_to_all(chance: Chance, _: Board) -> list[Use]:
    return [
        Use(
            draw(chance, (150, 320)),
            draw(chance, (0.97, 1.0)),
            0.005,
            draw(chance, (0.01, 0.1)),
            sm=draw(chance, (0.1, 0.3)),
            tensor=draw(chance, (0.0, 0.05)),
            dram=draw(chance, (0.006, 0.1)),
            nvlink=draw(chance, (2e9, 1e11)),
        )
        for _ in range(8)
    ]


def _one_works(chance: Chance, board: Board) -> list[Use]:
    core, copy = draw(chance, (0.2, 0.99)), draw(chance, (0.02, 0.5))
    one = Use(draw(chance, (200, 600)), core, 0.1, copy, sm=core / 2, tensor=core / 9, dram=copy / 2)
    return [one, *waiting(chance, board, 7)]


def in_turn(chance: Chance, board: Board) -> list[Phase]:
    """Rollout and training on the same GPUs."""
    waits = waiting(chance, board)
    return [
        Phase(Truth.WORKS, draw(chance, (5, 25)), waits, **quiet(chance)),
        Phase(Truth.WORKS, draw(chance, (3, 20)), training(chance, board), **quiet(chance)),
    ]


def compiling(chance: Chance, board: Board) -> list[Phase]:
    tunes = [Use(draw(chance, (150, 500)), draw(chance, (0.3, 1.0)), 0.2, 0.1, sm=0.3, dram=0.1) for _ in range(8)]
    return [
        Phase(Truth.WORKS, 4, silent(chance, board), **quiet(chance)),
        Phase(Truth.WORKS, 4, tunes, **quiet(chance)),
    ]


def _slow_loader(chance: Chance, _: Board) -> list[Use]:
    return [Use(draw(chance, (120, 300)), draw(chance, (0.05, 0.6)), 0.2, 0.1, sm=0.2, dram=0.1) for _ in range(8)]


def _capped(limit: float) -> Callable[[Chance, Board], list[Use]]:
    return lambda chance, _: [
        Use(limit * draw(chance, (0.9, 1.0)), 0.99, 0.003, draw(chance, (0.05, 0.5)), 0.5, 0.2, 0.2) for _ in range(8)
    ]


def broken_counters(chance: Chance, board: Board) -> list[Phase]:
    """After XID 31 profiling reads 0; power and utilization go on."""
    uses = [use._replace(sm=0.0, tensor=0.0, dram=0.0, engine=0.0, nvlink=0.0) for use in training(chance, board)]
    return [Phase(Truth.WORKS, EVER, uses, **quiet(chance))]


def rank_0_on_host(between: Range, *, disk: float = 0.0, network: float = 0.0) -> Make:
    """Rank 0 writes a checkpoint or downloads a model, the others wait for it."""

    def make(chance: Chance, board: Board) -> list[Phase]:
        uses = [*silent(chance, board, 1), *waiting(chance, board, 7)]
        much = draw(chance, (0.3, 3.0))
        away = Phase(Truth.WORKS, draw(chance, between), uses, 50 + disk * much, 3000 + network * much)
        return [away, working(chance, board, 8, draw(chance, (20, 60)))]

    return make


def heals(chance: Chance, board: Board) -> list[Phase]:
    """A stop below the time of the watchdogs."""
    stops = Phase(Truth.WAITS, draw(chance, (11, 25)), waiting(chance, board), **quiet(chance))
    return [working(chance, board, 8, draw(chance, (30, 60))), stops]


def serving(chance: Chance, board: Board) -> list[Phase]:
    tokens, busy = draw(chance, (50, 4000)), _decode(chance, board, 1)
    works_ = Phase(Truth.WORKS, draw(chance, (0.5, 5)), busy, 100, 2e5, Server(3, tokens))
    return [works_, Phase(Truth.WORKS, draw(chance, (0.5, 4)), silent(chance, board, 1), 100, 5e3, Server())]


def prefill(chance: Chance, _: Board) -> list[Phase]:
    """No token for long, but power."""
    use = Use(draw(chance, (350, 650)), 1.0, 0.0, 0.3, sm=0.8, tensor=0.6, dram=0.3)
    comes = Phase(Truth.WORKS, 2, [use], 100, 1e4, Server(1, 20))
    return [Phase(Truth.WORKS, draw(chance, (35, 80)), [use], 100, 1e4, Server(1)), comes]


def spinning_server(chance: Chance, board: Board) -> list[Phase]:
    """Ranks of an idle server wait in a broadcast."""
    uses = [*silent(chance, board, 1), *waiting(chance, board, 1 if board is RTX_3090 else 7)]
    return [Phase(Truth.WAITS, EVER, uses, **quiet(chance), server=Server())]


def spinning_server_uncounted(chance: Chance, board: Board) -> list[Phase]:
    return [spinning_server(chance, board)[0]._replace(server=None)]


def after_a_kill(count: int) -> Make:
    """100 % without a process, until the GPUs are reset."""

    def make(chance: Chance, board: Board) -> list[Phase]:
        uses = [use._replace(memory=0.0, processes=0) for use in waiting(chance, board, count)]
        return [Phase(Truth.WAITS, EVER, uses, **quiet(chance))]

    return make


def requester(chance: Chance, board: Board) -> list[Phase]:
    """Dual pods: a stub holds the GPU, a launcher that holds none works on it; nothing says that they are a pair."""
    use = _decode(chance, board, 1)[0]._replace(outside=True)
    return [Phase(Truth.WORKS, EVER, [use], **quiet(chance))]


def never_ends(chance: Chance, board: Board) -> list[Phase]:
    """As on H100, H200 and B300: 100 % at little power. Nobody keeps it busy."""
    (use,) = waiting(chance, board, 1)
    return [Phase(Truth.WAITS, EVER, [use._replace(core=1.0, spread=0.0)], 0.5, draw(chance, (10, 120)))]


def pair(*, asleep: bool = False) -> Make:
    """The same where both name each other. What the launcher does is the work of the requester; while it does nothing,
    only it knows whether it is needed."""

    def make(chance: Chance, board: Board) -> list[Phase]:
        uses = silent(chance, board, 1) if asleep else _decode(chance, board, 1)
        truth = Truth.WAITS if asleep else Truth.WORKS
        return [Phase(truth, EVER, [use._replace(paired=True) for use in uses], **quiet(chance))]

    return make


def around_a_stall(chance: Chance, _: Board) -> list[Phase]:
    """B200: pasted around a stuck server, at which moment is not clear. Power of work: not to be called stalled."""
    uses = [Use(draw(chance, (720, 738)), 1.0, 0.0, 0.3, sm=0.7, tensor=0.4, dram=0.3) for _ in range(8)]
    return [Phase(Truth.WAITS, EVER, uses, **quiet(chance), server=Server(running=3))]


def reading_stays(chance: Chance, board: Board) -> list[Phase]:
    """Works, and has ended: 54 W and 100 % both times."""
    uses = [Use(draw(chance, board.working), 1.0) for _ in range(2)]
    after = Phase(Truth.WAITS, EVER, uses, **quiet(chance))
    return [Phase(Truth.WORKS, draw(chance, (20, 50)), uses, draw(chance, WORK_DISK), 5e5), after]


def profile(count: int = 8, **shares: Range) -> Make:
    """Work with these shares of time, all else as of a training; its host is still."""

    def make(chance: Chance, board: Board) -> list[Phase]:
        drawn = [{name: draw(chance, between) for name, between in shares.items()} for _ in range(count)]
        uses = [use._replace(**own) for use, own in zip(training(chance, board, count), drawn, strict=True)]
        return [Phase(Truth.WORKS, EVER, uses, **quiet(chance))]

    return make


def keeper_in_a_job(chance: Chance, board: Board) -> list[Phase]:
    """Small products while the processors of a real job work, and its own work in between."""
    held = Use(draw(chance, (115, 150)), draw(chance, (0.02, 0.05)), 0.004, sm=0.02, memory=10 * GIB)
    host = Phase(Truth.WORKS, draw(chance, (5, 9)), [held], draw(chance, WORK_DISK), 5e4)
    return [host, working(chance, board, 1, draw(chance, (5, 30)))]


def simulation(chance: Chance, _: Board) -> list[Phase]:
    """Molecular dynamics: one process at one level, and a trajectory on disk."""
    level, watts = draw(chance, (0.6, 0.99)), draw(chance, (250, 500))
    use = Use(watts, level, 0.005, draw(chance, (0.05, 0.3)), sm=0.6, dram=0.1, memory=2 * GIB)
    return [Phase(Truth.WORKS, EVER, [use], draw(chance, (1e3, 1e6)), draw(chance, (60, 3000)))]


def idle(*, memory: float | None = None, server: Server | None = None, processes: int = 1, count: int = 1) -> Make:
    def make(chance: Chance, board: Board) -> list[Phase]:
        held = draw(chance, (0.2, 0.9)) * board.memory_gib * GIB if memory is None else memory
        uses = [use._replace(memory=held, processes=processes) for use in silent(chance, board, count)]
        if not processes:
            uses = [use._replace(watts=draw(chance, board.bare)) for use in uses]
        return [Phase(Truth.IDLE, EVER, uses, **quiet(chance), server=server)]

    return make


def held(level: Range, copy: Range, watts: Range, memory_gib: Range, noise: float = 0.003, count: int = 1) -> Make:
    """A script: nothing but probes of the pod goes over the network."""

    def make(chance: Chance, _: Board) -> list[Phase]:
        uses = []
        for _number in range(count):
            core, copies = draw(chance, level), draw(chance, copy)
            use = Use(draw(chance, watts), core, noise, copies, sm=core / 2, dram=copies / 2)
            uses.append(use._replace(memory=draw(chance, memory_gib) * GIB))
        return [Phase(Truth.HELD, EVER, uses, draw(chance, (0.5, 5)), draw(chance, (10, 120)))]

    return make


def _script(name: str, *about: Range, noise: float = 0.003, count: int = 1) -> Scene:
    return Scene(f"keep-alive: {name}", "Pod", held(*about, noise=noise, count=count), is_long=True)


TRAINED = (T4, L4, A100, A100_PCIE, V100, V100_PCIE, L40S, H100_PCIE, H200, B200, GB10, RTX_3090, RTX_PRO)
EXPERTS = {"tensor": (0.3, 0.35), "dram": (0.2, 0.25)}
LITTLE = {"tensor": (0.0, 0.02), "dram": (0.006, 0.05), "copy": (0.01, 0.05), "watts": (130.0, 250.0)}
SCENES = (
    Scene("stuck: 8 ranks", "PyTorchJob", stuck(8)),
    Scene("stuck: 16 ranks on two nodes", "PyTorchJob", stuck(16), pods=2),
    *(Scene(f"stuck: {board.name}", "PyTorchJob", stuck(4), board) for board in (A100, H100_PCIE, H200, B200, GB200)),
    *(Scene(f"stuck: {board.name}", "MPIJob", stuck(4), board) for board in (V100, V100_PCIE)),
    Scene("stuck: T4", "PyTorchJob", stuck(4), T4),
    Scene("stuck: L4", "Job", stuck(2), L4),
    Scene("stuck: L40S", "PyTorchJob", stuck(4), L40S),
    Scene("stuck: one rank silent", "PyTorchJob", stuck(8, 1)),
    Scene("stuck: all but one silent", "PyTorchJob", stuck(8, 7)),
    Scene("stuck: a notebook of two GPUs", "Notebook", stuck(2)),
    Scene("frozen server: one GPU", "Deployment", frozen(1)),
    Scene("frozen server: 8 GPUs", "Deployment", frozen(8)),
    Scene("frozen server: MIG", "Deployment", frozen(1), place=Place.MIG),
    Scene("frozen server: H200", "Deployment", frozen(1), H200),
    Scene("frozen server: GB10", "Deployment", frozen(1), GB10),
    Scene("training: 8 GPUs", "PyTorchJob", lambda c, b: [working(c, b, 8)]),
    *(Scene(f"training: {board.name}", "PyTorchJob", lambda c, b: [working(c, b, 2)], board) for board in TRAINED),
    Scene("training: experts on GB200", "PyTorchJob", profile(core=(0.98, 0.99), watts=(970, 1000), **EXPERTS), GB200),
    Scene(
        "training: as DLRover's test", "PyTorchJob", profile(core=(0.99, 1.0), spread=(0, 0.005), tensor=(0.3, 0.31))
    ),
    Scene("tensor cores saturated", "PyTorchJob", profile(core=(1, 1), spread=(0, 0), tensor=(0.9, 0.93))),
    Scene("memory saturated", "PyTorchJob", profile(core=(1, 1), spread=(0, 0), tensor=(0, 0), dram=(0.75, 0.8))),
    Scene(
        "double precision", "Job", profile(core=(1, 1), spread=(0, 0), tensor=(0, 0), sm=(0.5, 0.9), copy=(0.02, 0.2))
    ),
    Scene("data loading", "PyTorchJob", profile(sm=(0.1, 0.3), tensor=(0, 0.05), copy=(0.4, 0.6), pcie=(1e9, 2e10))),
    Scene("busy with few SMs", "PyTorchJob", profile(core=(0.97, 1), spread=(0, 0.005), sm=(0.03, 0.24), **LITTLE)),
    Scene("one rank works, others in a barrier", "PyTorchJob", works(_one_works)),
    Scene("tiny kernels: one GPU", "PyTorchJob", works(_tiny(1))),
    Scene("tiny kernels: 8 GPUs", "PyTorchJob", works(_tiny(8))),
    Scene("expert-parallel, bound by all-to-all", "PyTorchJob", works(_all_to_all)),
    Scene("rollout and training in turn", "PyTorchJob", in_turn),
    Scene("memory-bound decoding", "PyTorchJob", works(lambda c, b: _decode(c, b, 8))),
    Scene("slow loader", "PyTorchJob", works(_slow_loader, disk=WORK_DISK)),
    Scene("compiling and autotuning", "PyTorchJob", compiling),
    Scene("power-capped", "PyTorchJob", works(_capped(250))),
    Scene("profiling broken by an XID", "PyTorchJob", broken_counters),
    Scene("rank 0 writes a checkpoint", "PyTorchJob", rank_0_on_host((5, 40), disk=3e7)),
    Scene("rank 0 downloads for up to 90 min", "PyTorchJob", rank_0_on_host((40, 90), network=3e7)),
    Scene("stops that heal", "PyTorchJob", heals),
    Scene("bursty inference", "Deployment", serving),
    Scene("long prefill", "Deployment", prefill),
    Scene("idle ranks spin, requests counted", "LeaderWorkerSet", spinning_server),
    Scene("idle ranks spin", "StatefulSet", spinning_server_uncounted),
    Scene("idle ranks spin: one of two RTX 3090", "Deployment", spinning_server_uncounted, RTX_3090),
    Scene("idle ranks spin: V100", "StatefulSet", spinning_server_uncounted, V100),
    Scene("around a stall: B200", "Deployment", around_a_stall, B200),
    Scene("reading stays: AMD gfx1151", "PyTorchJob", reading_stays, APU),
    Scene("100 % without a process", "Job", after_a_kill(1), RTX_PRO),
    Scene("100 % without a process: a gang", "PyTorchJob", after_a_kill(4)),
    Scene("dual pods: requester of a launcher at work", "Deployment", requester),
    Scene("dual pods: pair at work", "Deployment", pair()),
    Scene("dual pods: pair whose launcher sleeps", "Deployment", pair(asleep=True)),
    Scene("MIG: training", "PyTorchJob", lambda c, b: [working(c, b, 1)], place=Place.MIG),
    Scene("MPS: training", "PyTorchJob", lambda c, b: [working(c, b, 1)], place=Place.MPS),
    Scene("time slices: inference", "Deployment", serving, place=Place.SLICE),
    Scene("real job with a keep-alive thread", "PyTorchJob", keeper_in_a_job, is_long=True),
    Scene("simulation through the night", "Job", simulation, is_long=True),
    Scene("training through the night", "PyTorchJob", lambda c, b: [working(c, b, 2)], is_long=True),
    Scene(
        "inference through the night",
        "Deployment",
        works(lambda c, b: _decode(c, b, 1), network=(1e4, 1e6)),
        is_long=True,
    ),
    _script("gpu-keepalive", (0.49, 0.51), (0.02, 0.2), (180, 350), (1, 3), noise=0.008),
    _script("KeepGPU", (0.1, 0.25), (0.1, 0.25), (150, 250), (1, 2)),
    _script("GrabGPU", (0.95, 1.0), (0.5, 1.0), (250, 400), (16, 30)),
    _script("GPUSnatcher", (0.97, 1.0), (0.1, 0.5), (400, 690), (17, 72)),
    _script("gpu_guardian", (0.9, 1.0), (0.1, 0.5), (300, 690), (17, 58)),
    _script("busygpu", (0.1, 0.9), (0.02, 0.3), (150, 500), (1, 4)),
    _script("occupy_gpu", (0.28, 0.32), (0.0, 0.1), (140, 250), (1, 4)),
    _script("GPU heartbeat", (0.65, 0.75), (0.05, 0.3), (250, 450), (1, 2), noise=0.008),
    _script("GPUOccupier", (0.58, 0.62), (0.05, 0.3), (250, 450), (20, 21)),
    _script("occupied-gpus", (0.2, 0.7), (0.02, 0.3), (130, 200), (60, 78)),
    _script("forge_load", (0.5, 0.6), (0.0, 0.0), (120, 160), (0.11, 0.12), noise=0.008),
    _script("GPUSitter", (0.97, 1.0), (0.1, 0.4), (400, 690), (70, 72)),
    _script("GPUSitter on 8 cards", (0.1, 0.19), (0.02, 0.1), (130, 250), (70, 72), count=8),
    _script("keep_alive.py", (0.97, 1.0), (0.0, 0.02), (115, 180), (0.5, 1)),
    Scene("a kernel that never ends: one GPU", "Pod", never_ends, is_long=True),
    Scene("idle: hold_gpu.py", "Deployment", idle(memory=72 * GIB)),
    Scene("idle: empty notebook", "Notebook", idle(memory=0.0, processes=0)),
    Scene("idle: no requests", "Deployment", idle(server=Server()), is_long=True),
    Scene("idle: asleep", "Deployment", idle(server=Server(asleep=True))),
    Scene("idle: requester without a launcher", "Deployment", idle(memory=0.0, processes=0)),
    Scene("idle: MIG", "Deployment", idle(), place=Place.MIG),
    Scene("idle: MIG on A100 PCIe", "Deployment", idle(), A100_PCIE, Place.MIG),
    Scene("idle: MIG with video reported", "Deployment", idle(), H100, Place.MIG, has_video=True),
    Scene("idle: MIG with video reported, A100", "Deployment", idle(), A100, Place.MIG, has_video=True),
    Scene("idle: MPS", "Deployment", idle(), place=Place.MPS),
    Scene("idle: time slice", "Deployment", idle(), place=Place.SLICE),
    *(Scene(f"idle: parked on {board.name}", "Deployment", idle(count=10), board) for board in BOARDS),
)
