"""Two sites in a real Prometheus: the demo's simulated nodes with the gpusteward agent, and the same with dcgm-exporter
alone. The analyzer reads them; its page and that of a real agent are then stored beside the samples of the nodes.
"""

import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gpusteward.agent.dialects.dcgm_options import DcgmOptions
from gpusteward.analyzer.metrics.health_metrics import reclaim_families
from gpusteward.analyzer.reclaim.policies.resolve import WatchedPolicies
from gpusteward.core.exposition import render_lines, render_text_header
from gpusteward.core.node.containers import Workload
from gpusteward.local.demo_settings import PRICES
from gpusteward.simulate.fleets import fleet
from gpusteward.simulate.nodes import SimulatedNode
from tests.agent.test_agent_process import is_ready, running
from tests.analyzer.api.fake_reclaim import FakeReclaim
from tests.analyzer.engines import Sample, running_prometheus
from tests.analyzer.scraped_history import Change, rename_labels, scrape_history, scrape_times
from tests.analyzer.serve_process import RunningServe, running_serve
from tests.fakes.model_server import FakeModel
from tests.fakes.receivers import Receiver

NODES = 9  # the first with MIG, time-slicing, MPS, HAMi, and a Hopper GPU
STEP_SECONDS = 60
HISTORY_SECONDS = 840  # a window and the minutes before and after it
ENVIRONMENT = {"PATH": os.environ["PATH"]}
SELF_METRICS = tuple(
    f"gpusteward_{name}" for name in ("build_info", "snapshot_age", "collector_", "cycles_total", "allocations_known")
)
"""Of the agent itself; the simulated nodes have none."""


@dataclass(frozen=True)
class Site:
    """A Prometheus with all data, and what the analyzer says about it."""

    url: str
    at: float
    nodes: Sequence[SimulatedNode]
    gpus: int  # that the simulator has
    result: dict[str, float]  # /api/v1/health of the analyzer
    workloads: list[dict[str, Any]]  # idle ones, from the analyzer's API


@contextmanager
def agent_site(folder: Path) -> Iterator[Site]:
    """Two clusters, every node with the agent, with the labels that targets of the chart's ServiceMonitor have."""
    nodes, times = fleet(NODES, 1, demo_at=time.time()), _times()
    samples: list[Sample] = []
    for number, node in enumerate(nodes):
        cluster = _add_labels(f'cluster="{("east", "west")[number % 2]}",service="gpusteward-agent",endpoint="metrics"')
        samples += scrape_history([node], times, change=cluster, job="gpusteward-agent")
    with _site(folder, nodes, samples, times, with_agent=True) as site:
        yield site


@contextmanager
def dcgm_site(folder: Path) -> Iterator[Site]:
    """One cluster without a name: dcgm-exporter of three versions, with and without `honorLabels`."""
    nodes, times = fleet(NODES, 1, demo_at=time.time()), _times()
    scraped = _add_labels(
        'namespace="gpu-operator",pod="nvidia-dcgm-exporter-x7k2p",container="exporter"', only_missing=True
    )
    renamed = rename_labels(pod="exported_pod", namespace="exported_namespace", container="exported_container")
    versions: list[tuple[DcgmOptions, Change]] = [
        (DcgmOptions(), scraped),
        (DcgmOptions(hostname_label="hostname"), lambda labels: scraped(renamed(labels))),
        (DcgmOptions(names="v4.9", hostname_label="hostname"), scraped),
    ]
    samples: list[Sample] = []
    for number, node in enumerate(nodes):
        options, change = versions[number % len(versions)]
        job = f"dcgm-exporter-{number % len(versions)}"
        history = scrape_history([node], times, dialects="dcgm", options=options, change=change, job=job)
        samples += (_change_target(sample, change) for sample in history)
    with _site(folder, nodes, samples, times, with_agent=False) as site:
        yield site


def _change_target(sample: Sample, change: Change) -> Sample:
    """`up` has the labels of the scraped pod too."""
    name, labels, value, at = sample
    return name, change(labels) if name == "up" else labels, value, at


def _times() -> list[float]:
    return scrape_times(HISTORY_SECONDS, at=time.time() + 60, step=STEP_SECONDS)


def _add_labels(text: str, *, only_missing: bool = False) -> Change:
    added = dict(re.findall(r'(\w+)="([^"]*)"', text))

    def change(labels: str) -> str:
        kept = {k: v for k, v in added.items() if not only_missing or f',{k}="' not in labels}
        return labels[:-1] + "".join(f',{name}="{value}"' for name, value in kept.items()) + "}"

    return change


@contextmanager
def _site(
    folder: Path, nodes: Sequence[SimulatedNode], samples: Iterable[Sample], times: Sequence[float], *, with_agent: bool
) -> Iterator[Site]:
    with running_prometheus(folder, samples) as engine:
        page, result, workloads = _analyze(folder, engine.url)
        agent = _repeat(_read_agent_page(), times, "agent") if with_agent else ()
        engine.write([*_repeat(page, times, "analyzer"), *agent])
        readings = [each for node in nodes for each in node.snapshot(times[-1]).readings]
        count = len([each for each in readings if each.gpu.mig is None])
        yield Site(engine.url, times[-1], nodes, count, result, workloads)


def _analyze(folder: Path, url: str) -> tuple[str, dict[str, float], list[dict[str, Any]]]:
    """The analyzer's page, the numbers of its result, and the idle workloads."""
    with FakeModel() as model, Receiver() as receiver:
        settings = {
            "prices": PRICES,
            "ai": {"enabled": True, "api_url": f"{model.url}/v1", "api_key": "key"},
            "control": {"enabled": True, "api_url": receiver.url},
            "kubernetes": {"owners": "never"},
        }
        (folder / "config.yaml").write_text(yaml.safe_dump(settings))
        with running_serve(folder, prometheus_url=url, env=ENVIRONMENT) as server:
            server.get("/api/v1/me", token="unknown")  # is refused and counted
            server.wait_for(_has_everything, seconds=30)
            page = server.get("/metrics").body.decode()
            result = server.get("/api/v1/health").json
            workloads = server.get("/api/v1/workloads?activity=idle&limit=500").json["items"]
    return f"{page}{_render_reclaim()}", result, workloads


def _render_reclaim() -> str:
    """What the page adds where reclaim has acted: the analyzer of these sites has no cluster to act on."""
    control = FakeReclaim([Workload("Deployment", "team", "web")])
    families = reclaim_families(control, WatchedPolicies(None))
    lines = [render_text_header(each.metric) + render_lines(each.metric, each.samples) for each in families]
    return "".join(each for each in lines if "reclaim_info" not in each)


def _has_everything(server: RunningServe) -> bool:
    page = server.get("/metrics").body.decode()
    wanted = ("gpu_utilization_score{", 'model_calls_total{result="ok"}', "deliveries_total{", "ledger_up")
    asked = re.search(r'model_calls_total\{result="ok"\} (\d+)', page)
    return all(each in page for each in wanted) and asked is not None and int(asked[1]) > 0


def _read_agent_page() -> str:
    with running("--source=simulated", "--node-name=agent-0", "--dialects=native", env=dict(os.environ)) as agent:
        agent.wait_for(is_ready)
        page = agent.get("/metrics")[1]
    return "".join(f"{line}\n" for line in page.splitlines() if line.startswith(("# TYPE", *SELF_METRICS)))


def _repeat(page: str, times: Sequence[float], name: str) -> Iterator[Sample]:
    """The page at every time; counters rise to their values."""
    target = f'instance="{name}",job="gpusteward-{name}"}}'
    counters = tuple(re.findall(r"^# TYPE (\S+) (?:counter|histogram)$", page, re.MULTILINE))
    for metric, labels, value in re.findall(r"^(\w+)(\{.*\})? (\S+)$", page, re.MULTILINE):
        text = f"{labels[:-1]},{target}" if labels else f"{{{target}"
        for number, at in enumerate(times, start=1):
            rise = number / len(times) if metric.startswith(counters) else 1
            yield metric, text, float(value) * rise, at
