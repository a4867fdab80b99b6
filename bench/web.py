"""`python -m bench.web`: the web UI in Chromium: bundle size, time to the first verdict, frame times, memory after an
hour of live updates, bytes per refresh. Writes bench/results/web.md.

Exits 0 whether the limits hold or not. Needs Chromium (`make components`) and the bundle (`make web`).
"""

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import IO, Any

from playwright.sync_api import Browser, Page

from bench.measure import MB, describe_run, name_command, print_progress
from bench.report import Bar, at_most, publish, render_bars, render_head, render_table
from tests.web.browser import Visitor, open_browser, visit

STATIC = Path(__file__).parents[1] / "src/gpusteward/analyzer/api/ui/static"
FIRST_PAGE = "src/pages/overview/overview.tsx"
SIZES = (100, 1_000, 10_000)
LOADS = 5
FRAME_SECONDS = 4.0
UPDATES_PER_HOUR = 120  # one every 30 seconds
READ_EVERY = 10
KB = 1000

# The moment at which the number of idle GPUs is on screen, in milliseconds after the navigation began.
WATCH_FIRST_VERDICT = """
new MutationObserver((_, observer) => {
  if (!document.querySelector("h1 .idle-number")) return;
  observer.disconnect();
  requestAnimationFrame(() => requestAnimationFrame(() => { globalThis.firstVerdict = performance.now(); }));
}).observe(document, { childList: true, subtree: true });
"""
# Scrolls an element up and down for some seconds, and returns the time between its frames in milliseconds.
SCROLL = """([selector, seconds, step]) => new Promise((resolve) => {
  const element = document.querySelector(selector);
  const times = [];
  let before = performance.now(), direction = step;
  const end = before + seconds * 1000;
  const frame = (now) => {
    times.push(now - before);
    before = now;
    const top = element.scrollTop;
    element.scrollTop += direction;
    if (element.scrollTop === top) direction = -direction;
    if (now < end) requestAnimationFrame(frame); else resolve(times.slice(2));
  };
  requestAnimationFrame(frame);
})"""


@dataclass(frozen=True, slots=True)
class Load:
    """The first view of the overview with an empty cache, and the bytes of one refresh."""

    gpus: int
    first_verdict_ms: list[float]
    overview_refresh_bytes: int
    workloads_refresh_bytes: int


@dataclass(frozen=True, slots=True)
class Frames:
    """Times between frames."""

    what: str
    gpus: int
    milliseconds: list[float]

    @property
    def middle(self) -> float:
        return median(self.milliseconds)

    @property
    def slow(self) -> float:
        """95 of 100 frames are faster."""
        return quantiles(self.milliseconds, n=20)[-1]

    @property
    def slowest(self) -> float:
        return max(self.milliseconds)


@dataclass(frozen=True, slots=True)
class Hour:
    """Memory of the scripts of a page during an hour of updates, after a garbage collection."""

    page: str
    gpus: int
    heap_bytes: list[int]

    @property
    def growth(self) -> float:
        """From the first third to the last third, median to median, relative."""
        third = max(1, len(self.heap_bytes) // 3)
        before, after = median(self.heap_bytes[:third]), median(self.heap_bytes[-third:])
        return (after - before) / before


@dataclass(slots=True)
class Results:
    """One run."""

    load_average: float = 0.0  # of the machine before the run: what else runs on it
    chunks: dict[str, int] = field(default_factory=dict)  # gzip bytes of the files of the first load
    total_bytes: int = 0  # gzip bytes of all files
    loads: list[Load] = field(default_factory=list)
    frames: list[Frames] = field(default_factory=list)
    hours: list[Hour] = field(default_factory=list)

    @property
    def first_load_bytes(self) -> int:
        return sum(self.chunks.values())


def measure_bundle(static: Path = STATIC) -> tuple[dict[str, int], int]:
    """The gzip sizes of what the first page loads, and of everything."""
    manifest = json.loads((static / "manifest.json").read_text())
    names = {"index.html", "theme.js", *collect_chunk(manifest, "index.html"), *collect_chunk(manifest, FIRST_PAGE)}
    sizes = {name: _gzip_size(static / name) for name in sorted(names)}
    files = [path for path in static.rglob("*") if path.is_file() and path.suffix not in (".gz", ".br")]
    return sizes, sum(map(_gzip_size, files))


def collect_chunk(manifest: dict[str, Any], name: str) -> set[str]:
    """The files of a chunk with everything that it imports at once."""
    chunk = manifest.get(name, {})
    found = {chunk["file"], *chunk.get("css", ())} if chunk else set()
    return found.union(*(collect_chunk(manifest, each) for each in chunk.get("imports", ())))


def _gzip_size(path: Path) -> int:
    return len(gzip.compress(path.read_bytes(), 9))


class Server:
    """The API in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.url = self._read_line()

    def publish(self) -> int:
        """A new result; returns its number."""
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write("\n")
        stdin.flush()
        return int(self._read_line())

    def _read_line(self) -> str:
        stdout: IO[str] | None = self._process.stdout
        assert stdout is not None
        line = stdout.readline().strip()
        assert line, "the server has ended"
        return line


@contextmanager
def running_server(gpus: int) -> Iterator[Server]:
    command = [sys.executable, "-m", "bench.web_server", str(gpus)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Server(process)
        finally:
            process.kill()


class TransferredBytes:
    """The bytes of all responses to a page, headers included, as the browser counts them."""

    def __init__(self, page: Page) -> None:
        self.total = 0
        protocol = page.context.new_cdp_session(page)
        protocol.send("Network.enable")
        protocol.on("Network.loadingFinished", self._add)

    def _add(self, event: dict[str, Any]) -> None:
        self.total += int(event["encodedDataLength"])


def measure_load(browser: Browser, server: Server, gpus: int) -> Load:
    times = []
    for _ in range(LOADS):
        with visit(browser, server.url) as visitor:
            visitor.page.add_init_script(WATCH_FIRST_VERDICT)
            visitor.page.goto(visitor.base)
            visitor.until("() => globalThis.firstVerdict")
            times.append(float(visitor.page.evaluate("globalThis.firstVerdict")))
    sizes = [_measure_refresh(browser, server, address) for address in ("#/", "#/workloads")]
    return Load(gpus, times, *sizes)


def _measure_refresh(browser: Browser, server: Server, address: str) -> int:
    with visit(browser, server.url) as visitor:
        visitor.open(address)
        counted = TransferredBytes(visitor.page)
        update(server, visitor)
        visitor.page.wait_for_load_state("networkidle")
        return counted.total


def update(server: Server, visitor: Visitor) -> None:
    """Publish a result, and wait until the page shows its time."""
    shown = visitor.page.locator(".freshness").inner_text()
    server.publish()
    visitor.page.wait_for_function("(before) => document.querySelector('.freshness').innerText !== before", arg=shown)
    visitor.settle()


def measure_frames(browser: Browser, server: Server, gpus: int) -> list[Frames]:
    found = []
    for name, address, selector, step in (
        ("map", "#/", ".map-scroll", 24),
        ("table", "#/workloads", ".grid", 240),
    ):
        with visit(browser, server.url) as visitor:
            page = visitor.open(address)
            arguments = [selector, FRAME_SECONDS, step]
            found.append(Frames(f"{name}, scrolling", gpus, page.evaluate(SCROLL, arguments)))
            page.evaluate(f"globalThis.frames = ({SCROLL})({json.dumps(arguments)})")
            server.publish()
            found.append(Frames(f"{name}, scrolling during an update", gpus, page.evaluate("globalThis.frames")))
    return found


def measure_hour(browser: Browser, server: Server, *, gpus: int, name: str, address: str) -> Hour:
    with visit(browser, server.url) as visitor:
        visitor.open(address)
        protocol = visitor.page.context.new_cdp_session(visitor.page)
        heap = []
        for number in range(UPDATES_PER_HOUR + 1):
            if number % READ_EVERY == 0:
                protocol.send("HeapProfiler.collectGarbage")
                heap.append(int(protocol.send("Runtime.getHeapUsage")["usedSize"]))
            update(server, visitor)
    return Hour(name, gpus, heap)


def judge(results: Results) -> list[Bar]:
    largest = max(load.gpus for load in results.loads)
    bars = [at_most("first load", 150, results.first_load_bytes / KB, "kB gzip", "all files of the first page")]
    bars += [
        at_most(
            f"first verdict at {load.gpus:,} GPUs", 1, median(load.first_verdict_ms) / 1000, "s", "median, empty cache"
        )
        for load in results.loads
    ]
    bars += [
        at_most(
            f"{each.what}, {each.gpus:,} GPUs", 1000 / 60 + 1, each.middle, "ms per frame", "median; 60 frames a second"
        )
        for each in results.frames
        if each.gpus == largest and "update" not in each.what
    ]
    bars += [
        at_most(
            f"memory of {each.page} stays flat", 5, each.growth * 100, "% of growth", "first to last third of an hour"
        )
        for each in results.hours
    ]
    return bars


def render(results: Results) -> str:
    loads = [
        (
            f"{load.gpus:,}",
            f"{median(load.first_verdict_ms):.0f}",
            f"{max(load.first_verdict_ms):.0f}",
            f"{load.overview_refresh_bytes / KB:.1f}",
            f"{load.workloads_refresh_bytes / KB:.1f}",
        )
        for load in results.loads
    ]
    frames = [
        (f"{each.what}", f"{each.gpus:,}", f"{each.middle:.1f}", f"{each.slow:.1f}", f"{each.slowest:.0f}")
        for each in results.frames
    ]
    hours = [
        (each.page, f"{each.gpus:,}", " ".join(f"{size / MB:.1f}" for size in each.heap_bytes), f"{each.growth:+.1%}")
        for each in results.hours
    ]
    return "\n".join(
        [
            render_head(
                "The web UI, measured",
                describe_run(name_command("web")),
                "Chromium without a GPU. The API has a simulated result with one workload per GPU, eight GPUs per node."
                f" Browser, API and bench share the machine. Load average before the run: {results.load_average:.1f}.",
            ),
            "## Limits\n",
            render_bars(judge(results)),
            "## Bundle\n",
            render_table(
                ("file of the first load", "gzip, kB"),
                [*((name, f"{size / KB:.1f}") for name, size in results.chunks.items())],
            ),
            f"All pages together: {results.total_bytes / KB:.1f} kB gzip.\n",
            "## Time to the first verdict, and bytes of one refresh\n",
            render_table(
                ("GPUs", "median, ms", "slowest, ms", "refresh of the overview, kB", "of the workloads, kB"), loads
            ),
            f"From the navigation until the number of idle GPUs is on screen, {LOADS} loads with an empty cache. A",
            "refresh is everything that the page reads after a new result in which a third of the verdicts changed.\n",
            "## Frames\n",
            render_table(("what", "GPUs", "median, ms", "95th percentile, ms", "slowest, ms"), frames),
            f"Time between frames during {FRAME_SECONDS:g} s.\n",
            "## An hour of live updates\n",
            render_table(("page", "GPUs", "heap after garbage collection, MB", "growth"), hours),
            f"{UPDATES_PER_HOUR} results, one after the other; the heap is read after every {READ_EVERY}th.",
        ]
    )


def run(executable: str, sizes: tuple[int, ...]) -> Results:
    results = Results(load_average=os.getloadavg()[0])
    results.chunks, results.total_bytes = measure_bundle()
    for gpus in sizes:
        print_progress(f"{gpus} GPUs: first verdict, refresh, frames")
        with running_server(gpus) as server, open_browser(executable) as browser:
            results.loads.append(measure_load(browser, server, gpus))
            results.frames += measure_frames(browser, server, gpus)
    gpus = sorted(sizes)[len(sizes) // 2]
    print_progress(f"{gpus} GPUs: an hour of live updates")
    with running_server(gpus) as server, open_browser(executable) as browser:
        for name, address in (("overview", "#/"), ("workloads", "#/workloads")):
            results.hours.append(measure_hour(browser, server, gpus=gpus, name=name, address=address))
    return results


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.web")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="GPUs: 100,1000,10000")
    parser.add_argument("--dry", action="store_true", help="print the result, write nothing")
    options = parser.parse_args()
    executable = shutil.which("chromium")
    if executable is None or not (STATIC / "index.html").exists():
        print("needs Chromium (`make components`) and the bundle (`make web`)", file=sys.stderr)
        return 0
    sizes = tuple(int(each) for each in options.sizes.split(","))
    return publish("web", lambda: render(run(executable, sizes)), is_dry=options.dry)


if __name__ == "__main__":
    sys.exit(main())
