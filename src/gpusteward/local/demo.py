"""`gpusteward demo`: an analyzer on a simulated cluster with three weeks of history."""

import signal
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path

import yaml

from gpusteward.analyzer.app import Analyzer
from gpusteward.analyzer.ledger.db_engine import open_engine
from gpusteward.analyzer.ledger.migrations.upgrade import upgrade
from gpusteward.analyzer.prices import PriceList
from gpusteward.analyzer.serve import run_analyzer
from gpusteward.analyzer.settings.file import SettingsFile
from gpusteward.analyzer.settings.flags import Flags
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.scrape.source import ScrapeSource
from gpusteward.core.messages import Language
from gpusteward.local.history_seed import Advance, SeededHistory
from gpusteward.local.simulated_fleet import SimulatedFleet, serve_fleet
from gpusteward.logs import Log, configure_logs
from gpusteward.messages import local as messages
from gpusteward.simulate.fleets import fleet as simulate_fleet
from gpusteward.simulate.nodes import SimulatedNode

log = Log(__name__)

HISTORY_DAYS = 21
INTERVAL_SECONDS = 30
SCRAPE_TIMEOUT_SECONDS = 60
"""Longer than the first window takes to fill, also on a slow machine."""

PRICES = {
    "currency": "USD",
    "per_gpu_hour": {"H100": 4.0, "H200": 5.5, "A100": 2.2, "A100 80GB": 2.8, "B200": 7.0, "L40S": 1.3, "L4": 0.7},
    "default": 0.9,
    "discount_percent": {"student-projects": 30},
    "electricity_per_kwh": 0.12,
}
"""Examples in the range of cloud prices."""


def run_demo(
    flags: Flags, *, nodes: int, seed: int, language: Language, show_progress: AbstractContextManager[Advance]
) -> int:
    """Serve until a signal stops it, and leave no files. Raises ConfigurationError.

    `show_progress`: entered while the history is simulated.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until the analyzer handles signals itself
    fleet = SimulatedFleet(simulate_fleet(nodes, seed), ready_timeout_seconds=SCRAPE_TIMEOUT_SECONDS / 2)
    with tempfile.TemporaryDirectory(prefix="gpusteward-demo-") as folder, serve_fleet(fleet) as targets:
        config = _write_config(Path(folder), targets)
        file = SettingsFile(replace(flags, config=config), {}, directory=Path(folder))
        configure_logs(level=file.settings.logging.level, as_json=file.settings.logging.as_json)
        with show_progress as advance:
            _write_history(fleet.nodes, file.settings, until=time.time(), advance=advance)
        return run_analyzer(
            file,
            prepare=lambda analyzer: _fill_window(fleet, analyzer, targets),
            announce=partial(_announce, agent_url=targets[0].removesuffix("/metrics"), language=language),
        )


def _write_config(folder: Path, targets: Sequence[str]) -> Path:
    """A settings file; the ledger is in the same folder."""
    settings = {
        "prometheus": {"url": "", "time_window_min": 10},
        "scrape": {
            "targets": list(targets),
            "interval": INTERVAL_SECONDS,
            "timeout": SCRAPE_TIMEOUT_SECONDS,
            "kubernetes": "never",
        },
        "scheduler": {"interval": INTERVAL_SECONDS},
        "kubernetes": {"owners": "never"},
        "logging": {"level": "warning"},
        "ledger": {"url": f"sqlite:///{folder / 'gpusteward.db'}"},
        "prices": PRICES,
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(settings, sort_keys=False))
    return path


def _write_history(nodes: Sequence[SimulatedNode], settings: Settings, *, until: float, advance: Advance) -> None:
    engine = open_engine(settings.ledger.locate())
    try:
        upgrade(engine)
        SeededHistory(nodes, PriceList(settings.prices)).write(engine, days=HISTORY_DAYS, until=until, advance=advance)
    finally:
        engine.dispose()


def _fill_window(fleet: SimulatedFleet, analyzer: Analyzer, targets: Sequence[str]) -> None:
    """Ingest the samples of the last window, so that the first cycle already has verdicts."""
    source, settings = analyzer.source.source, analyzer.settings.current
    assert isinstance(source, ScrapeSource)
    step = settings.scrape.interval
    count = int(settings.prometheus.window_seconds / step) + 1
    now = time.time()
    for number in range(count, 0, -1):
        for node, target in zip(fleet.nodes, targets, strict=True):
            at = now - number * step
            source.ingest(target, fleet.render_metrics(node.name, at), at)
    fleet.set_ready()
    log.info("window_filled", nodes=len(fleet.nodes), scrapes=count)


def _announce(url: str, *, agent_url: str, language: Language) -> None:
    commands = "gpusteward top, gpusteward idle, gpusteward report --since 7d"
    print(messages.DEMO_STARTED.text(language, url=url, agent_url=agent_url, commands=commands), flush=True)
