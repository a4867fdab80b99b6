"""Requests of inference servers that are scraped: the same as from an engine, for the same pages."""

import re
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.rules import Rules
from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.source import ScrapeSource
from gpusteward.analyzer.sources.usage.inference_servers import join_servers
from gpusteward.analyzer.tables import ACTIVITIES, SIGNATURES, UsageTable
from gpusteward.core.verdicts import Activity, Signature
from tests.analyzer.engines import Sample, running_prometheus
from tests.analyzer.scraped_history import AT, STEP, WINDOW
from tests.analyzer.sources.promql import test_requests as of_engine
from tests.analyzer.sources.promql.test_requests import SILENT, gpu_pod, values, vllm
from tests.analyzer.sources.scrape.page_server import pages_of, serving_pages, wait_for

pytestmark = pytest.mark.slow

_OF_TARGET = frozenset(
    (
        "namespace",
        "pod",
        "container",
        "job",
        "instance",
        "kubernetes_pod_name",
        "kubernetes_namespace",
        "pod_name",
        "llm_isvc_role",
    )
)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def feed(source: ScrapeSource, samples: Iterable[Sample]) -> None:
    """Each target's pages as it serves them, under the labels that a file of targets gives it."""
    pages: dict[tuple[float, str], list[str]] = {}
    targets: dict[str, dict[str, str]] = {}
    for name, text, value, at in samples:
        labels = dict(_LABEL.findall(text))
        is_agent = labels["job"] == "gpusteward"
        own = {key: labels.pop(key) for key in (("job", "instance") if is_agent else _OF_TARGET) if key in labels}
        target = ",".join(map("=".join, sorted(own.items())))
        targets[target] = {} if is_agent else own
        on_page = ",".join(f'{key.removeprefix("exported_")}="{one}"' for key, one in labels.items())
        lines = pages.setdefault((at, target), [])
        if name != "up":
            lines.append(f"{name}{{{on_page}}} {value!r}\n" if on_page else f"{name} {value!r}\n")
    for (at, target), lines in sorted(pages.items()):
        source.ingest(target, "".join(lines).encode(), at, pod_labels=targets[target])


def scraped(samples: Iterable[Sample]) -> UsageTable:
    settings = ScrapeSettings(interval=STEP, selector="")
    with closing(ScrapeSource(settings, window_seconds=WINDOW)) as source:
        feed(source, samples)
        return join_servers(source.read(AT))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[UsageTable, UsageTable]:
    """Of an engine, and scraped."""
    # A job of its own that is scraped more often than the others: the scraper has one interval.
    samples = [sample for sample in of_engine.history() if 'job="ml/fast"' not in sample[1]]
    with (
        running_prometheus(tmp_path_factory.mktemp("requests"), samples) as running,
        closing(PrometheusSource(PrometheusSettings(url=running.url))) as source,
    ):
        return join_servers(source.read(AT)), scraped(samples)


def test_every_reading_of_every_server_is_that_of_an_engine(both):
    queried, mine = both
    pods = [one.container.pod for one in queried.allocations]
    assert pods
    assert sorted(pods) == sorted(one.container.pod for one in mine.allocations)
    found = {pod: values(mine, pod) for pod in pods}
    assert found == {pod: pytest.approx(values(queried, pod), rel=1e-5) for pod in pods}
    silent = {pod for pod in pods if found[pod].get(SILENT) == 1}
    assert silent >= {"silent", "embedding", "kserve", "ray", "sglang-live", "triton", "trtllm", "dynamo-worker"}
    assert silent >= {"lws-0", "lws-0-1"}
    assert silent.isdisjoint({"served", "cancelled", "restarted", "young", "gap", "impersonated", "tgi", "router"})


def test_the_verdicts_are_those_of_an_engine(both):
    def decide(table: UsageTable) -> Mapping[str, tuple[str, str]]:
        verdicts, _ = judge(table, Rules(), VerdictHistory(), now=AT)
        pods = [one.container.pod for one in table.allocations]
        activities = [ACTIVITIES[code] for code in verdicts.activity.tolist()]
        signatures = [SIGNATURES[code] for code in verdicts.signature.tolist()]
        return dict(zip(pods, zip(activities, signatures, strict=True), strict=True))

    queried, mine = (decide(table) for table in both)
    assert mine == queried
    assert mine["silent"] == (Activity.IDLE, Signature.NO_REQUESTS)
    assert mine["served"][1] is not Signature.NO_REQUESTS


def test_a_target_of_a_file_says_which_pod_it_is(tmp_path: Path):
    page = b'vllm:request_success_total{finished_reason="stop"} 3\nprocess_start_time_seconds 5\n'
    with serving_pages({"/metrics": page}) as server:
        listed = tmp_path / "targets.yaml"
        address = server.address("/metrics").removeprefix("http://").partition("/")[0]
        listed.write_text(f"- targets: ['{address}']\n  labels: {{namespace: ml, pod: chat-0}}\n")
        settings = ScrapeSettings(targets_file=listed, interval=1, selector="")
        with closing(ScrapeSource(settings, window_seconds=60)) as source:
            wait_for(lambda: source.store.series > 0)
            found = source.read(time.time()).servers
            described = source.describe()
    assert [(one.server, one.container.namespace, one.container.pod, one.is_silent) for one in found] == [
        ("vLLM", "ml", "chat-0", False)
    ]
    assert described["inference_servers"] == ["vLLM"]


def test_a_page_that_names_its_pod_itself_denies_silence_and_never_proves_it():
    """As the page of an attacker that is nobody's pod."""
    silent = [*gpu_pod("other"), *vllm("other")]
    served = [*gpu_pod("other"), *vllm("other", finished=of_engine.steps(40, 46))]
    for samples, requests in ((silent, 0), (served, 6)):
        settings = ScrapeSettings(interval=STEP, selector="")
        with closing(ScrapeSource(settings, window_seconds=WINDOW)) as source:
            for target, page, at in pages_of(samples):
                source.ingest(target, page, at)
            found = values(join_servers(source.read(AT)), "other")
        assert found[SILENT] == 0
        assert found[of_engine.REQUESTS] == pytest.approx(requests, rel=0.06)
