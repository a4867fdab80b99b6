"""An analyzer of two clusters as a program, on a free port: the same nodes, pods and GPUs in both, with six hours of
history. Its exporters report the label `cost-center` of pods.

python -m tests.web.two_clusters FOLDER
"""

import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from gpusteward.analyzer.app import Analyzer
from gpusteward.analyzer.server.serve import run_analyzer
from gpusteward.analyzer.settings.file import SettingsFile
from gpusteward.analyzer.settings.flags import Flags
from gpusteward.analyzer.sources.scrape.sample_store import PageOrigin
from gpusteward.analyzer.sources.scrape.source import ScrapeSource
from gpusteward.analyzer.sources.scrape.targets import ReportedNode
from gpusteward.local.demo_servers import serve_fleet
from gpusteward.local.demo_settings import PRICES
from gpusteward.local.simulated_fleet import SimulatedFleet
from gpusteward.simulate.fleets import fleet
from tests.analyzer.api.server import make_result

CLUSTERS = ("east", "west")
NODES, SEED = 4, 7
LABEL = "cost-center"
COST_CENTERS = {"vision": "cc-100", "robotics-lab": "cc-100", "student-projects": ""}
"""By namespace; other namespaces have the second one, and an empty one means that its pods have no such label."""
OTHERS = "cc-200"
STEP, WINDOW_MINUTES, CYCLE_SECONDS, HISTORY_HOURS = 30, 10, 300, 6
COVERED_SECONDS = 900
"""A cycle accounts for the time since the last one, up to three intervals."""


class LabelledFleet(SimulatedFleet):
    """Adds a label of pods to every series of a holder, as an exporter does that may read it."""

    def render_metrics(self, name: str, at: float) -> bytes:
        return re.sub(rb'namespace="([^"]+)"', _add_label, super().render_metrics(name, at))


def _add_label(found: re.Match[bytes]) -> bytes:
    value = COST_CENTERS.get(found[1].decode(), OTHERS)
    return found[0] + f',label_cost_center="{value}"'.encode() if value else found[0]


def main(folder: Path) -> int:
    with ExitStack() as stack:
        fleets = {name: LabelledFleet(fleet(NODES, SEED), ready_timeout_seconds=30) for name in CLUSTERS}
        targets = {name: stack.enter_context(serve_fleet(each)) for name, each in fleets.items()}
        file = _write_settings(folder, targets)
        return run_analyzer(
            file, prepare=lambda analyzer: _prepare(analyzer, fleets, targets), announce=partial(print, flush=True)
        )


def _write_settings(folder: Path, targets: Mapping[str, list[str]]) -> SettingsFile:
    groups = [{"targets": urls, "labels": {"cluster": name}} for name, urls in targets.items()]
    (folder / "targets.yaml").write_text(yaml.safe_dump(groups))
    settings: dict[str, Any] = {
        "server": {"address": "127.0.0.1:0"},
        "prometheus": {"url": "", "time_window_min": WINDOW_MINUTES},
        "scrape": {"targets_file": str(folder / "targets.yaml"), "interval": STEP, "selector": ""},
        "scheduler": {"interval": CYCLE_SECONDS},
        "kubernetes": {"owners": "never"},
        "ledger": {"url": f"sqlite:///{folder / 'ledger.db'}", "labels": [LABEL]},
        "prices": PRICES,
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    return SettingsFile(Flags(), {}, directory=folder)


def _prepare(analyzer: Analyzer, fleets: Mapping[str, SimulatedFleet], targets: Mapping[str, list[str]]) -> None:
    """The samples of one window, and cycles of the past with the verdicts of now."""
    source, settings, now = analyzer.source.source, analyzer.settings.current, time.time()
    assert isinstance(source, ScrapeSource)
    for at in _count_up(now - WINDOW_MINUTES * 60 - STEP, now - STEP, STEP):  # scrapes follow
        for cluster, each in fleets.items():
            for node, target in zip(each.nodes, targets[cluster], strict=True):
                origin = partial(PageOrigin, {"cluster": cluster}, node=ReportedNode(node.name))
                source.store.ingest(target, each.render_metrics(node.name, at), at, make_origin=origin)
    for each in fleets.values():
        each.set_ready()
    table = source.read(now)
    for number, at in enumerate(_count_up(now - HISTORY_HOURS * 3600, now - 60, COVERED_SECONDS), start=1):
        analyzer.ledger.record(make_result(replace(table, at=at), settings=settings, number=number))


def _count_up(begin: float, end: float, step: float) -> Iterator[float]:
    while begin <= end:
        yield begin
        begin += step


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
