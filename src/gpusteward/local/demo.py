"""`gpusteward demo`: a cluster that does not exist, three weeks old, and the whole analyzer on it."""

import signal
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path

from gpusteward.analyzer.app import Analyzer
from gpusteward.analyzer.ledger.db_engine import open_engine
from gpusteward.analyzer.ledger.migrations.upgrade import upgrade
from gpusteward.analyzer.prices import PriceList
from gpusteward.analyzer.serve import run_analyzer
from gpusteward.analyzer.settings.file import SettingsFile
from gpusteward.analyzer.settings.flags import Flags
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.scrape.source import ScrapeSource
from gpusteward.local.configs import PATIENCE_SECONDS, write_demo_config
from gpusteward.local.history_seed import Advance, SeededHistory
from gpusteward.local.simulated_fleet import Park, serve_park
from gpusteward.logs import Log, configure_logs
from gpusteward.simulate.fleets import fleet
from gpusteward.simulate.nodes import SimulatedNode

log = Log(__name__)

PAST_DAYS = 21


def run_demo(flags: Flags, *, nodes: int, seed: int, show_progress: AbstractContextManager[Advance]) -> int:
    """Serve until a signal ends it; nothing of it is left. Raises ConfigurationError for what a person can mend.

    `show_progress`: opened while the past is made up, and told how far that is.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until the analyzer listens to signals itself
    park = Park(fleet(nodes, seed), patience_seconds=PATIENCE_SECONDS / 2)
    with tempfile.TemporaryDirectory(prefix="gpusteward-demo-") as folder, serve_park(park) as targets:
        config = write_demo_config(Path(folder), targets)
        file = SettingsFile(replace(flags, config=config), {}, directory=Path(folder))
        configure_logs(level=file.settings.logging.level, as_json=file.settings.logging.as_json)
        with show_progress as advance:
            write_past(park.nodes, file.settings, until=time.time(), advance=advance)
        return run_analyzer(
            file,
            prepare=lambda analyzer: _open_park(park, analyzer, targets),
            announce=partial(_announce, agent_url=targets[0].removesuffix("/metrics")),
        )


def write_past(nodes: Sequence[SimulatedNode], settings: Settings, *, until: float, advance: Advance) -> None:
    engine = open_engine(settings.ledger.locate())
    try:
        upgrade(engine)
        SeededHistory(nodes, PriceList(settings.prices)).write(engine, days=PAST_DAYS, until=until, advance=advance)
    finally:
        engine.dispose()


def _open_park(park: Park, analyzer: Analyzer, targets: Sequence[str]) -> None:
    """The window that is judged lies in the past already: verdicts need not wait for it to pass."""
    source, settings = analyzer.source.source, analyzer.settings.current
    assert isinstance(source, ScrapeSource)
    step = settings.scrape.interval
    count = int(settings.prometheus.window_seconds / step) + 1
    now = time.time()
    for number in range(count, 0, -1):
        for node, target in zip(park.nodes, targets, strict=True):
            at = now - number * step
            source.ingest(target, park.speak(node.name, at), at)
    park.open()
    log.info("window_filled", nodes=len(park.nodes), moments=count)


def _announce(url: str, *, agent_url: str) -> None:
    print(
        f"{url} shows a simulated cluster: {url}/api/v1/workloads, {url}/docs, {url}/metrics; Ctrl-C ends it\n"
        f"In another terminal: export GPUSTEWARD_SERVER={url}\n"
        "and then: gpusteward top, gpusteward idle, gpusteward report --since 7d\n"
        f"and on one of its nodes: gpusteward ps --agent {agent_url}",
        flush=True,
    )
