"""VictoriaMetrics: reading usage through its export API against PromQL queries, on the same engine, in turns."""

import shutil
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from bench.fleet_data import STEP, Fleet, list_import_batches
from bench.fleet_results import ExportPath
from bench.progress import print_progress
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from tests.analyzer.engines import running_victoria

WINDOW_MINUTES = 10
AGE_SECONDS = 120
"""The data ends before VictoriaMetrics' latency offset, within which it ignores samples."""


def measure_export_paths(sizes: Sequence[int], *, rounds: int, folder: Path) -> tuple[list[ExportPath], str]:
    """A row per size, or none and the reason."""
    if shutil.which("victoria-metrics") is None:
        return [], "victoria-metrics is not installed"
    return [_measure(gpus, rounds=rounds, folder=folder) for gpus in sizes], ""


def _measure(gpus: int, *, rounds: int, folder: Path) -> ExportPath:
    with ExitStack() as stack:
        fleet, url = stack.enter_context(_run_fleet(folder, gpus))
        export, queries = (stack.enter_context(_open_source(url, use_export=use)) for use in (True, False))
        at = float(fleet.end)
        tables = [source.read(at) for source in (export, queries)]  # with discovery, not counted
        measured = ExportPath(gpus, [len(table) for table in tables])
        for number in range(rounds):
            if number % 2:
                measured.query_seconds.append(_time_read(queries, at))
            measured.export_seconds.append(_time_read(export, at))
            if not number % 2:
                measured.query_seconds.append(_time_read(queries, at))
    print_progress(
        f"  {gpus:,} GPUs on VictoriaMetrics: export {measured.export_seconds}, queries {measured.query_seconds} s"
    )
    return measured


@contextmanager
def _run_fleet(folder: Path, gpus: int) -> Iterator[tuple[Fleet, str]]:
    end = int(time.time()) // STEP * STEP - AGE_SECONDS
    fleet = Fleet(gpus, end - WINDOW_MINUTES * 60 - STEP, end)
    with tempfile.TemporaryDirectory(dir=folder) as name, running_victoria(Path(name)) as engine:
        for batch in list_import_batches(fleet):
            _post(f"{engine.url}/api/v1/import", batch)
        _post(f"{engine.url}/internal/force_flush", b"")
        yield fleet, engine.url


def _post(url: str, body: bytes) -> None:
    with urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=120) as response:
        response.read()


@contextmanager
def _open_source(url: str, *, use_export: bool) -> Iterator[PrometheusSource]:
    settings = PrometheusSettings(url=url, time_window_min=WINDOW_MINUTES, use_export=use_export)
    with closing(PrometheusSource(settings)) as source:
        yield source


def _time_read(source: PrometheusSource, at: float) -> float:
    started = time.perf_counter()
    source.read(at)
    return time.perf_counter() - started
