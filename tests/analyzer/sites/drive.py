"""A foreign site on a real Prometheus, read by the analyzer with its API and `gpusteward doctor`, against its truth.

The truth of each is known: its GPUs, who holds them, who works. The program is right, or it says what is wrong: health
is a warning or degraded, a finding names the cause, and doctor repeats it. Anything else is silently wrong. Cycles
before the last one have their time as an argument: nothing waits.
"""

import asyncio
import io
import json
import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpusteward.analyzer.app import Analyzer
from gpusteward.analyzer.server.http_server import LimitedServer
from gpusteward.analyzer.server.listen_socket import open_socket
from gpusteward.analyzer.server.serve import configure_server
from gpusteward.analyzer.settings.file import SettingsFile
from gpusteward.analyzer.settings.flags import Flags
from gpusteward.analyzer.sources.offered_gpus import OfferedGpus
from gpusteward.cli.main import main as run_command
from tests.analyzer.api.server import Client
from tests.analyzer.engines import RunningEngine, running_prometheus
from tests.analyzer.sites.site_data import AHEAD_SECONDS, HISTORY_SECONDS
from tests.analyzer.sites.variants import Truth, Variant
from tests.analyzer.sources.faulty_engine import FaultyEngine, faulty
from tests.analyzer.test_gpu_presence import list_of, serving
from tests.analyzer.test_node_presence import node
from tests.waiting import wait_until

RIGHT, NAMED, UNKNOWN, WRONG = "right", "degraded and named", "unknown and named", "SILENTLY WRONG"
SHOWN_CHARACTERS = 160
_PROBLEMS = ("warn", "fail")


@dataclass(frozen=True, slots=True)
class Found:
    """What the program says about a site."""

    health: dict[str, Any]
    rows: list[dict[str, Any]]  # allocations
    doctor: list[dict[str, str]]

    @property
    def status(self) -> str:
        return str(self.health["status"])

    @property
    def findings(self) -> list[str]:
        """What is more than an information, and that GPUs could not be judged."""
        found = self.health["findings"]
        return [one["text"] for one in found if one["level"] != "info" or one["code"] == "unknown-gpus"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row of the table."""

    variant: Variant
    gpus: str
    holders: str
    verdicts: str
    health: str
    finding: str
    result: str


@contextmanager
def running_engines(folder: Path, variant: Variant) -> Iterator[list[tuple[RunningEngine, FaultyEngine]]]:
    """A Prometheus for each engine, behind a proxy which can fail."""
    with ExitStack() as stack:
        engines = []
        for number in range(len(variant.engines)):
            own = folder / f"engine-{number}"
            own.mkdir()
            engine = stack.enter_context(running_prometheus(own))
            engines.append((engine, stack.enter_context(faulty(engine.url))))
        yield engines


def drive(variant: Variant, folder: Path) -> Found:
    """The site, the cycles of its analyzer, and what API and doctor then say."""
    now = time.time() + 1.0  # the last cycle begins then, or a little later
    with ExitStack() as stack:
        engines = stack.enter_context(running_engines(folder, variant))
        config = _write_settings(folder, variant, [proxy.url for _, proxy in engines])
        offered = None
        if variant.offered is not None:
            nodes = [_describe_node(name, capacity) for name, capacity in variant.offered]
            offered = OfferedGpus(stack.enter_context(serving(lambda _: list_of(nodes)))[0])
        for _, proxy in engines:
            proxy.clock_ahead_seconds = variant.skew
        analyzer = Analyzer(SettingsFile(Flags(config), {}, directory=folder), offered=offered)
        before = -float("inf")
        for age in variant.cycles:
            _store(variant, engines, now, after=before, until=now - age)
            before = now - age
            analyzer._pipeline.run(analyzer.settings.begin_cycle(), at=before, use_ai=False)
        _store(variant, engines, now, after=before, until=now + (0 if variant.is_late else AHEAD_SECONDS))
        for engine, proxy in engines[len(engines) - variant.engines_failing :]:
            if variant.fault:
                proxy.fault = variant.fault()
            else:
                engine.stop()
        with serving_analyzer(analyzer) as client:
            done = len(variant.cycles)
            wait_until(lambda: _count_cycles(client) > done, 60, lambda: f"no cycle at site {variant.name}")
            return _ask(client, config)


def _describe_node(name: str, capacity: Mapping[str, str]) -> Mapping[str, Any]:
    """As GPU discovery labels it."""
    labels = {"nvidia.com/gpu.count": capacity["nvidia.com/gpu"]} if "nvidia.com/gpu" in capacity else {}
    return node(name, labels=labels, status={"capacity": {"cpu": "8", **capacity}})


def _count_cycles(client: Client) -> int:
    cycles = client.get("/api/v1/health").json["cycles"]
    return int(cycles["finished"]) + int(cycles["failed"])


def _write_settings(folder: Path, variant: Variant, urls: Sequence[str]) -> Path:
    engine = {"url": list(urls), **variant.settings}
    settings = {"prometheus": engine, "ledger": {"url": f"sqlite:///{folder}/ledger.db"}}
    path = folder / "config.yaml"
    path.write_text(json.dumps({**settings, "server": {"address": "127.0.0.1:0"}}))
    return path


def _store(
    variant: Variant, engines: Sequence[tuple[RunningEngine, FaultyEngine]], now: float, *, after: float, until: float
) -> None:
    after = max(after, now - HISTORY_SECONDS - 600)
    for jobs, (engine, _) in zip(variant.engines, engines, strict=True):
        samples = [sample for job in jobs for sample in job.store(now, after=after, until=until)]
        engine.write(samples)


@contextmanager
def serving_analyzer(analyzer: Analyzer) -> Iterator[Client]:
    """As `gpusteward serve` runs it: its scheduler begins the next cycle at once."""
    listening = open_socket(analyzer.settings.current.server)
    server = LimitedServer(configure_server(analyzer.api), web=analyzer.web)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])))
    thread.start()
    client = Client(f"http://127.0.0.1:{listening.getsockname()[1]}")
    try:
        wait_until(lambda: server.started, 30, lambda: "the API does not answer")
        yield client
    finally:
        server.should_exit = True
        thread.join(30)
        analyzer.interrupt()


def _ask(client: Client, config: Path) -> Found:
    out = io.StringIO()
    with redirect_stdout(out):
        run_command(["doctor", "--server", client.url, "--config", str(config), "--output", "json", "--language", "en"])
    response = client.get("/api/v1/allocations?limit=1000")
    return Found(
        health=client.get("/api/v1/health").json,
        rows=response.json["items"] if response.status == 200 else [],
        doctor=json.loads(out.getvalue()),
    )


def judge(variant: Variant, found: Found) -> Outcome:
    truth = variant.truth
    counted = found.health["gpus"] or 0
    holders, verdicts = _compare_holders(found.rows, truth), _compare_verdicts(found.rows, truth)
    is_placed = counted == truth.gpus and holders == len(found.rows) == truth.rows and _has_nodes(found.rows, truth)
    harmful = [row for row in found.rows if row["highest_step"] == "reclaim" and truth.works(row["pod"])]
    named = _find_named(variant, found)
    if harmful:
        result = WRONG
    elif is_placed and verdicts == truth.rows:
        result = RIGHT
    elif named and found.status != "healthy":
        result = NAMED
    else:
        is_careful = bool(named) and is_placed and _differ_by_unknown(found.rows, truth)
        result = UNKNOWN if is_careful else WRONG
    return Outcome(
        variant,
        f"{counted}/{truth.gpus}",
        _write_holders(holders, found.rows, truth),
        f"{verdicts}/{truth.rows}",
        found.status,
        _shorten(named or next(iter(found.findings), "")),
        result,
    )


def _shorten(text: str) -> str:
    """Ports and UUIDs are others in each run or say nothing."""
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1", re.sub(r"GPU-[-0-9a-f]+", "GPU-…", text))
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def _write_holders(right: int, rows: Sequence[dict[str, Any]], truth: Truth) -> str:
    others = len(rows) - right
    nodes = "" if _has_nodes(rows, truth) or right < truth.rows else ", other nodes"
    return f"{right}/{truth.rows}" + (f", {others} more" if others > 0 else "") + nodes


def _compare_holders(rows: Sequence[dict[str, Any]], truth: Truth) -> int:
    """How many are as in truth."""
    return sum((Counter((row["namespace"], row["pod"]) for row in rows) & truth.pods).values())


def _has_nodes(rows: Sequence[dict[str, Any]], truth: Truth) -> bool:
    """Whether as many rows are on each node of each cluster, whatever these are called."""
    return Counter(Counter((row["cluster"], row["node"]) for row in rows).values()) == truth.nodes


def _compare_verdicts(rows: Sequence[dict[str, Any]], truth: Truth) -> int:
    shown = Counter((row["pod"], row["activity"]) for row in rows)
    return sum((shown & truth.activities).values())


def _differ_by_unknown(rows: Sequence[dict[str, Any]], truth: Truth) -> bool:
    """Whether each row that is not as in truth is unknown, with a reason."""
    wrong = Counter((row["pod"], row["activity"]) for row in rows) - truth.activities
    doubts = [row["doubt"] for row in rows if row["activity"] == "unknown"]
    return {activity for _, activity in wrong} <= {"unknown"} and all(doubts)


def _find_named(variant: Variant, found: Found) -> str:
    """The finding that names the cause, if doctor says the same."""
    warned = " ".join(row["finding"] for row in found.doctor if row["check"] == "data" or row["status"] in _PROBLEMS)
    for text in found.findings:
        if variant.cause and re.search(variant.cause, text) and re.search(variant.cause, warned):
            return text
    return ""


def run(variant: Variant) -> Outcome:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        return judge(variant, drive(variant, Path(folder)))
