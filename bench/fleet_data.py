"""A made-up fleet as blocks of Prometheus: what dcgm-exporter would have told of N GPUs, as fast as text is written.

A value is one of a few courses for each signal: what a query costs depends on how many samples there are, not on what
they say.
"""

import random
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.analyzer.engines import find_program

STEP = 30
BLOCK_SECONDS = 7200
"""promtool cuts blocks at these marks, and reads its whole input once for each: so each gets a file of its own."""
COURSES = 64
SIGNALS = {
    "DCGM_FI_DEV_GPU_UTIL": (0, 100),
    "DCGM_FI_DEV_MEM_COPY_UTIL": (0, 60),
    "DCGM_FI_DEV_FB_USED": (500, 80_000),
    "DCGM_FI_DEV_FB_FREE": (500, 80_000),
    "DCGM_FI_DEV_POWER_USAGE": (60, 400),
    "DCGM_FI_DEV_SM_CLOCK": (210, 1410),
}
"""By name: the least and the most of its values."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """So many GPUs, all of them held by pods, with samples at every step from `start` to `end`."""

    gpus: int
    start: int
    end: int

    @property
    def moments(self) -> range:
        return range(self.start, self.end + 1, STEP)


def plan_fleet(gpus: int, *, window_seconds: float, ahead_seconds: float) -> Fleet:
    """A fleet whose samples reach so far ahead of now that a window which ends later is full too."""
    now = int(time.time()) // STEP * STEP
    return Fleet(gpus, now - int(window_seconds) - STEP, now + int(ahead_seconds) // STEP * STEP)


def uuid_of(gpu: int) -> str:
    return f"GPU-{gpu:08x}-5a1e-4c0f-9d3b-{gpu * 2654435761 % 2**48:012x}"


def labels_of(gpu: int) -> str:
    """Eleven labels, eight GPUs a node, four to a pod."""
    node, place = divmod(gpu, 8)
    return (
        f'gpu="{place}",UUID="{uuid_of(gpu)}",device="nvidia{place}",pci_bus_id="00000000:{place + 7:02X}:00.0",'
        f'modelName="NVIDIA A100-SXM4-80GB",Hostname="node-{node:05}",container="main",'
        f'namespace="team-{gpu // 4 % 40}",pod="train-{gpu // 4:05}-0",'
        f'instance="10.{node >> 8}.{node & 255}.7:9400",job="dcgm-exporter"'
    )


def write_blocks(fleet: Fleet, folder: Path) -> None:
    """Blocks in `folder`/data, for a Prometheus to start on."""
    data = folder / "data"
    data.mkdir(parents=True)
    pieces = list(cut_blocks(fleet.moments))
    with ThreadPoolExecutor() as pool:  # promtool works on one core each
        list(pool.map(lambda piece: _write_block(fleet.gpus, piece, data), pieces))


def cut_blocks(moments: Iterable[int]) -> Iterator[list[int]]:
    """Moments that fall into the same block."""
    blocks: dict[int, list[int]] = {}
    for moment in moments:
        blocks.setdefault(moment // BLOCK_SECONDS, []).append(moment)
    yield from blocks.values()


def _write_block(gpus: int, moments: Sequence[int], data: Path) -> None:
    source = data.parent / f"samples-{moments[0]}.txt"
    made = data.parent / f"made-{moments[0]}"
    write_samples(source, gpus, moments=moments)
    command = [find_program("promtool"), "tsdb", "create-blocks-from", "openmetrics", str(source), str(made)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    source.unlink()
    for block in made.iterdir():
        shutil.move(block, data)


def write_samples(path: Path, gpus: int, *, moments: Sequence[int]) -> None:
    """OpenMetrics, series by series: one join each, which leaves the work to C."""
    chance = random.Random(moments[0])
    labels = [labels_of(gpu) for gpu in range(gpus)]
    with path.open("w", buffering=1 << 20) as file:
        for signal, (least, most) in SIGNALS.items():
            courses = [
                [f"{chance.randint(least, most)} {moment}\n" for moment in moments] for _ in range(min(COURSES, gpus))
            ]
            for gpu, own in enumerate(labels):
                series = f"{signal}{{{own}}} "
                file.write(series + series.join(courses[gpu % len(courses)]))
        file.write("# EOF\n")
