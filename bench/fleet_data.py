"""A simulated fleet as samples of dcgm-exporter, in blocks for Prometheus.

Each signal has a few different curves: the cost of a query depends on the number of samples, not on their values.
"""

import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.measure import print_progress
from tests.analyzer.engines import Sample, find_program, running_prometheus

STEP = 30
BLOCK_SECONDS = 7200
"""promtool cuts blocks at multiples of this, and reads its whole input once per block: each block gets its own file."""
AHEAD_SECONDS, AHEAD_SECONDS_A_GPU = 60, 0.006
"""How far the data reaches into the future: `gpusteward serve` reads the present, and making blocks takes time."""
CURVES = 64
SIGNALS = {
    "DCGM_FI_DEV_GPU_UTIL": (0, 100),
    "DCGM_FI_DEV_MEM_COPY_UTIL": (0, 60),
    "DCGM_FI_DEV_FB_USED": (500, 80_000),
    "DCGM_FI_DEV_FB_FREE": (500, 80_000),
    "DCGM_FI_DEV_POWER_USAGE": (60, 400),
    "DCGM_FI_DEV_SM_CLOCK": (210, 1410),
}
"""Metric name -> smallest and largest value."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """A number of GPUs, all held by pods, with samples at every step from `start` to `end`."""

    gpus: int
    start: int
    end: int
    first: int = 0  # number of the first GPU: fleets in several engines have different GPUs

    @property
    def moments(self) -> range:
        return range(self.start, self.end + 1, STEP)


def plan_fleet(gpus: int, *, window_seconds: float, site_gpus: int = 0) -> Fleet:
    """Its samples reach into the future, so that a window that ends later is complete too. `site_gpus`: of all engines
    whose blocks are made."""
    now, ahead_seconds = int(time.time()) // STEP * STEP, AHEAD_SECONDS + AHEAD_SECONDS_A_GPU * (site_gpus or gpus)
    return Fleet(gpus, now - int(window_seconds) - STEP, now + int(ahead_seconds) // STEP * STEP)


@contextmanager
def run_fleet(
    folder: Path, gpus: int, *, window_seconds: float, list_further: Callable[[Fleet], Iterable[Sample]] = lambda _: ()
) -> Iterator[tuple[Fleet, str]]:
    """The fleet, and the address of a Prometheus that contains it and further samples, those of a series in a row."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        own, began, fleet = Path(name), time.monotonic(), plan_fleet(gpus, window_seconds=window_seconds)
        write_blocks(fleet, own)
        _write_further(list_further(fleet), own)
        samples = len(fleet.moments) * gpus * len(SIGNALS) / 1e6
        print_progress(f"  {samples:.1f} million samples in {time.monotonic() - began:.0f} s")
        with running_prometheus(own) as engine:
            yield fleet, engine.url


def uuid_of(gpu: int) -> str:
    return f"GPU-{gpu:08x}-5a1e-4c0f-9d3b-{gpu * 2654435761 % 2**48:012x}"


def target_of(node: int) -> str:
    return f'instance="10.{node >> 8}.{node & 255}.7:9400",job="dcgm-exporter"'


def labels_of(gpu: int) -> str:
    """Eleven labels; eight GPUs per node, four per pod."""
    node, index = divmod(gpu, 8)
    return (
        f'gpu="{index}",UUID="{uuid_of(gpu)}",device="nvidia{index}",pci_bus_id="00000000:{index + 7:02X}:00.0",'
        f'modelName="NVIDIA A100-SXM4-80GB",Hostname="node-{node:05}",container="main",'
        f'namespace="team-{gpu // 4 % 40}",pod="train-{gpu // 4:05}-0",{target_of(node)}'
    )


def write_blocks(fleet: Fleet, folder: Path) -> None:
    """Blocks in `folder`/data for Prometheus."""
    data = folder / "data"
    data.mkdir(parents=True)
    pieces = list(cut_blocks(fleet.moments))
    with ThreadPoolExecutor() as pool:  # each promtool uses one core
        list(pool.map(lambda piece: _write_block(fleet, piece, data), pieces))


def cut_blocks(moments: Iterable[int]) -> Iterator[list[int]]:
    """The moments of each block."""
    blocks: dict[int, list[int]] = {}
    for moment in moments:
        blocks.setdefault(moment // BLOCK_SECONDS, []).append(moment)
    yield from blocks.values()


def _write_further(samples: Iterable[Sample], folder: Path) -> None:
    source = folder / "further.txt"
    with source.open("w", buffering=1 << 20) as file:
        file.writelines(f"{name}{labels} {value:g} {at:.0f}\n" for name, labels, value, at in samples)
        has_some = file.tell() > 0
        file.write("# EOF\n")
    if has_some:
        _make_blocks(source, folder / "data")


def _write_block(fleet: Fleet, moments: Sequence[int], data: Path) -> None:
    source = data.parent / f"samples-{moments[0]}.txt"
    write_samples(source, range(fleet.first, fleet.first + fleet.gpus), moments=moments)
    _make_blocks(source, data)


def _make_blocks(source: Path, data: Path) -> None:
    made = source.with_suffix(".made")
    command = [find_program("promtool"), "tsdb", "create-blocks-from", "openmetrics", str(source), str(made)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    source.unlink()
    for block in made.iterdir():
        shutil.move(block, data)


def write_samples(path: Path, gpus: range, *, moments: Sequence[int]) -> None:
    """OpenMetrics text, one `join` per series, which is fast."""
    chance = random.Random(moments[0])
    labels = [labels_of(gpu) for gpu in gpus]
    with path.open("w", buffering=1 << 20) as file:
        for signal, (least, most) in SIGNALS.items():
            curves = [
                [f"{chance.randint(least, most)} {moment}\n" for moment in moments]
                for _ in range(min(CURVES, len(gpus)))
            ]
            for gpu, own in enumerate(labels):
                series = f"{signal}{{{own}}} "
                file.write(series + series.join(curves[gpu % len(curves)]))
        up = [f"1 {moment}\n" for moment in moments]  # Prometheus writes it for every target
        for target in dict.fromkeys(target_of(gpu // 8) for gpu in gpus):
            file.write(f"up{{{target}}} " + f"up{{{target}}} ".join(up))
        file.write("# EOF\n")
