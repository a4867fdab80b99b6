"""Requests of inference servers, read from a real Prometheus: what proves silence, and every signal that lies."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from gpusteward.analyzer.sources.engine.settings import PrometheusSettings
from gpusteward.analyzer.sources.promql.several_engines import SeveralEngines
from gpusteward.analyzer.sources.promql.source import PrometheusSource
from gpusteward.analyzer.sources.usage.inference_servers import SERVERS, join_servers
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core import metrics
from gpusteward.core.errors import SourceError
from gpusteward.core.usages import Measure, Stat
from tests.analyzer.engines import RunningEngine, Sample, running_prometheus, running_victoria
from tests.analyzer.scraped_history import AT, WINDOW, scrape_times, steady
from tests.analyzer.sources.faulty_engine import fails, faulty
from tests.analyzer.tables import of_pod
from tests.constants import make_settings

pytestmark = pytest.mark.slow

TIMES = scrape_times()
MIDDLE = next(number for number, at in enumerate(TIMES) if at > AT - WINDOW / 2)
Course = float | Sequence[float]
SILENT, REQUESTS, TOKENS = (Measure.SILENT, Stat.LOWEST), (Measure.REQUESTS, Stat.COUNT), (Measure.TOKENS, Stat.COUNT)
SERVED_TOKENS = (Measure.SERVED_TOKENS, Stat.COUNT)
SERVER_MEASURES = {Measure.REQUESTS, Measure.TOKENS, Measure.SERVED_TOKENS, Measure.RUNNING, Measure.WAITING}
SERVER_MEASURES |= {Measure.ASLEEP, Measure.SILENT}


def steps(before: float, after: float) -> list[float]:
    """A value that changes in the middle of the window."""
    return [before] * MIDDLE + [after] * (len(TIMES) - MIDDLE)


def at_one_sample(value: float) -> list[float]:
    return [0.0] * MIDDLE + [value] + [0.0] * (len(TIMES) - MIDDLE - 1)


def series(name: str, course: Course, times: Sequence[float] = TIMES, **labels: str) -> Iterator[Sample]:
    values = [course] * len(times) if isinstance(course, int | float) else course[-len(times) :]
    for at, value in zip(times, values, strict=True):
        yield from steady(name, value, [at], **labels)


def gpu_pod(pod: str, kind: str = "Deployment", workload: str = "") -> Iterator[Sample]:
    """A pod with one GPU that does nothing."""
    gpu = {"node": "n1", "gpu": "0", "uuid": f"GPU-{pod}", "job": "gpusteward", "instance": "n1:9400"}
    holder = gpu | {"namespace": "ml", "pod": pod, "container": "main", "pod_uid": f"uid-{pod}"}
    owner = {"workload_kind": kind, "workload": workload or pod}
    yield from steady(metrics.GPU_INFO.name, 1, TIMES, **gpu, model="H100")
    yield from steady(metrics.ALLOCATION_INFO.name, 1, TIMES, **holder, **owner, share="exclusive")
    yield from steady(metrics.USE_UTILIZATION.name, 0.0, TIMES, **holder, **owner, by="container")
    yield from steady(metrics.USE_BUSY_SECONDS.name, 7.0, TIMES, **holder, **owner, by="container")
    yield from steady(metrics.USE_MEMORY.name, 7e10, TIMES, **holder, **owner, by="container")


def target(pod: str, **labels: str) -> dict[str, str]:
    """What a PodMonitor adds."""
    return {
        "namespace": "ml",
        "pod": pod,
        "container": "main",
        "job": "ml/servers",
        "instance": f"{pod}:8000",
        **labels,
    }


def vllm(
    pod: str,
    *,
    finished: Course = 40.0,
    tokens: Course = 9000.0,
    prompt: Course = 5000.0,
    running: Course = 0.0,
    waiting: Course = 0.0,
    prefix: str = "vllm:",
    times: Sequence[float] = TIMES,
    process_start: Course = AT - 86_400,
    leaving_out: Sequence[str] = (),
    **labels: str,
) -> Iterator[Sample]:
    """A page of vLLM as scraped, silent by default."""
    own = target(pod, **labels)
    engine = own | {"model_name": "m", "engine": "0"}
    page: Mapping[str, tuple[Course, dict[str, str]]] = {
        f"{prefix}request_success_total": (finished, engine | {"finished_reason": "stop"}),
        f"{prefix}prompt_tokens_total": (prompt, engine),
        f"{prefix}generation_tokens_total": (tokens, engine),
        f"{prefix}num_requests_running": (running, engine),
        f"{prefix}num_requests_waiting": (waiting, engine),
        "process_start_time_seconds": (process_start, own),
        "up": (1.0, own),
    }
    for name, (course, all_labels) in page.items():
        if name.removeprefix(prefix) not in leaving_out:
            yield from series(name, course, times, **all_labels)
    if "request_success_total" not in leaving_out:
        yield from series(f"{prefix}request_success_total", 3.0, times, **engine, finished_reason="abort")


SERVED: Mapping[str, Mapping[str, object]] = {
    "silent": {},
    "served": {"finished": steps(40, 46), "tokens": steps(9000, 12_000)},
    # What lies, by the facts of each server.
    "cancelled": {"running": 3.0},  # the gauges keep their last value when the engine stops stepping
    "between-scrapes": {"finished": steps(40, 41), "tokens": steps(9000, 9100)},  # no gauge ever saw it
    "long-request": {"running": 1.0, "tokens": steps(9000, 60_000)},  # nothing is finished yet
    "hung": {"running": 32.0, "waiting": 4.0},
    "livelock": {"waiting": 2.0},  # the scheduler runs nothing
    "waited-once": {"waiting": at_one_sample(1)},
    "in-turn": {"finished": [40.0, 7.0] * len(TIMES)},  # several processes, each with counters of its own
    "embedding": {"leaving_out": ("generation_tokens_total",)},
    "restarted": {"finished": steps(40, 0), "tokens": steps(9000, 0)},
    "restarted-at-zero": {"finished": 0.0, "tokens": 0.0, "process_start": steps(AT - 86_400, AT - 200)},
    "young": {"times": TIMES[-12:], "process_start": AT - 350},
    "gap": {"times": [at for at in TIMES if not AT - 500 < at < AT - 200]},
    "without-tokens": {"leaving_out": ("generation_tokens_total", "prompt_tokens_total")},
    "without-gauges": {"leaving_out": ("num_requests_running",)},
    "only-gauges": {"leaving_out": ("request_success_total", "generation_tokens_total", "prompt_tokens_total")},
    "kserve": {"prefix": "kserve_vllm:"},
    "ray": {"prefix": "ray_vllm_"},
}


def history() -> Iterator[Sample]:
    yield from steady("up", 1, TIMES, job="gpusteward", instance="n1:9400")
    for pod, page in SERVED.items():
        yield from gpu_pod(pod)
        yield from vllm(pod, **page)  # type: ignore[arg-type]
    # Two jobs scrape the same pod, and count the same requests.
    yield from gpu_pod("scraped-twice")
    yield from vllm("scraped-twice", finished=steps(40, 46))
    yield from vllm("scraped-twice", finished=steps(40, 46), job="ml/second")
    # Annotations: the labels are named by the configuration.
    yield from gpu_pod("annotated")
    names = {"kubernetes_pod_name": "annotated", "kubernetes_namespace": "ml"}
    yield from vllm("", finished=steps(40, 44), namespace="", instance="annotated:8000", job="pods", **names)
    # A gateway writes the series, and an operator that names its pods in a label of its own.
    yield from gpu_pod("behind-gateway")
    yield from vllm(
        "gateway",
        finished=steps(40, 43),
        exported_pod="behind-gateway",
        exported_namespace="ml",
        namespace="monitoring",
    )
    # Two servers in one pod, of which one has not been scraped for nine minutes.
    yield from gpu_pod("two-ports")
    yield from vllm("two-ports")
    early = [at for at in TIMES if at < AT - 540]
    yield from vllm("two-ports", times=early, instance="two-ports:8001", container="second")
    # Scraped every five seconds; half of the window is missing.
    yield from gpu_pod("fast")
    yield from vllm("fast", times=[at for at in scrape_times(step=5.0) if at < AT - 290], job="ml/fast")
    yield from gpu_pod("long")
    yield from vllm("long", times=scrape_times(3000))
    # A pod of another team says that it is this one.
    yield from gpu_pod("impersonated")
    yield from vllm("attacker", exported_pod="impersonated", exported_namespace="ml", namespace="others")
    yield from gpu_pod("of-operator")
    yield from vllm("", finished=steps(40, 45), pod_name="of-operator", instance="of-operator:8000", job="operator")
    # `--disable-log-stats`: the target is up and has no series of the server.
    yield from gpu_pod("no-stats")
    yield from steady("up", 1, TIMES, **target("no-stats"))
    # Two data-parallel engines, one of which serves.
    yield from gpu_pod("two-engines")
    yield from vllm("two-engines")
    second = target("two-engines") | {"model_name": "m", "engine": "1"}
    yield from series("vllm:request_success_total", steps(7, 9), **second, finished_reason="stop")
    # A LeaderWorkerSet: only leaders have metrics.
    for pod in ("lws-0", "lws-0-1", "lws-1", "lws-1-1"):
        yield from gpu_pod(pod, "LeaderWorkerSet", "lws")
    for pod in ("lws-0", "lws-1"):
        yield from vllm(pod)
    for pod in ("half-0", "half-0-1", "half-1", "half-1-1"):
        yield from gpu_pod(pod, "LeaderWorkerSet", "half")
    yield from vllm("half-0")
    # Prefill and decode: both need to be silent.
    for pod in ("prefill", "decode"):
        yield from gpu_pod(pod, "LLMInferenceService", "disaggregated")
    yield from vllm("prefill")
    yield from vllm("decode", running=1.0, tokens=steps(100, 200))
    # Both halves read the prompt, and the decode engine counts it once more.
    for pod in ("halves-p", "halves-d"):
        yield from gpu_pod(pod, "LLMInferenceService", "halves")
    for pod, role, prompt, tokens in (("halves-p", "prefill", 8000, 10), ("halves-d", "decode", 8000, 400)):
        yield from vllm(pod, prompt=steps(5000, 5000 + prompt), tokens=steps(100, 100 + tokens), llm_isvc_role=role)
    # A replica of a Deployment without metrics may be the one that serves.
    for pod in ("replica-a", "replica-b"):
        yield from gpu_pod(pod, "Deployment", "replicas")
    yield from vllm("replica-a")
    yield from gpu_pod("reason-appears")
    yield from vllm("reason-appears")
    late = target("reason-appears") | {"model_name": "m", "engine": "0", "finished_reason": "error"}
    yield from series("vllm:request_success_total", 1.0, TIMES[-4:], **late)
    yield from others()


def others() -> Iterator[Sample]:
    """Pages of other servers, silent unless said."""
    for pod in OTHERS:
        yield from gpu_pod(pod)
        yield from steady("up", 1, TIMES, **target(pod))
        for name, course, labels in OTHERS[pod]:
            yield from series(name, course, **target(pod), **labels)


_SGLANG: list[tuple[str, Course, dict[str, str]]] = [
    ("sglang:num_requests_total", 5.0, {"model_name": "m"}),
    ("sglang:num_running_reqs", 0.0, {"tp_rank": "0"}),
    ("sglang:num_queue_reqs", 0.0, {"tp_rank": "0"}),
    ("sglang:prompt_tokens_total", 9.0, {"model_name": "m"}),
    ("sglang:generation_tokens_total", 9.0, {"model_name": "m"}),
]
_TRITON: list[tuple[str, Course, dict[str, str]]] = [
    ("nv_inference_request_success", 5.0, {"model": "m", "version": "1"}),
    ("nv_inference_request_failure", 1.0, {"model": "m", "version": "1", "reason": "OTHER"}),
    ("nv_inference_exec_count", 5.0, {"model": "m", "version": "1"}),
    ("nv_inference_pending_request_count", 0.0, {"model": "m", "version": "1"}),
]
_TRTLLM: list[tuple[str, Course, dict[str, str]]] = [
    ("trtllm_num_requests_completed_total", 5.0, {}),
    ("trtllm_request_success_total", 5.0, {"finished_reason": "stop"}),
    ("trtllm_prompt_tokens_total", 5.0, {}),
    ("trtllm_generation_tokens_total", 5.0, {}),
    ("trtllm_num_requests_running", 0.0, {}),
    ("trtllm_num_requests_waiting", 0.0, {}),
]
OTHERS: Mapping[str, list[tuple[str, Course, dict[str, str]]]] = {
    "sglang-live": [*_SGLANG, ("sglang:realtime_tokens_total", 9.0, {"mode": "decode"})],
    "sglang": _SGLANG,
    "sglang-decoding": [*_SGLANG, ("sglang:realtime_tokens_total", steps(9, 900), {"mode": "decode"})],
    "triton": _TRITON,
    "triton-failing": [("nv_inference_request_failure", steps(1, 3), {"model": "m"}), *_TRITON[:1], *_TRITON[2:]],
    "trtllm": _TRTLLM,
    "trtllm-served": [
        ("trtllm_num_requests_completed_total", steps(5, 9), {}),
        ("trtllm_request_success_total", steps(5, 9), {"finished_reason": "stop"}),
        *_TRTLLM[2:],
    ],
    "dynamo-worker": [
        ("dynamo_component_requests_total", 5.0, {"dynamo_endpoint": "generate"}),
        ("dynamo_component_inflight_requests", 0.0, {"dynamo_endpoint": "generate"}),
    ],
    "dynamo-frontend": [
        ("dynamo_frontend_requests_total", 5.0, {"model": "m"}),
        ("dynamo_frontend_output_tokens_total", 5.0, {"model": "m"}),
        ("dynamo_frontend_active_requests", 0.0, {"model": "m"}),
    ],
    "tgi": [
        ("tgi_request_count", 5.0, {}),
        ("tgi_request_generated_tokens_sum", 5.0, {}),
        ("tgi_batch_current_size", 0.0, {}),
        ("tgi_queue_size", 0.0, {}),
    ],
    "nim": [
        ("request_finish_total", 5.0, {"model_name": "m", "finish_reason": "stop"}),
        ("prompt_tokens_total", 5.0, {"model_name": "m"}),
        ("num_requests_running", 0.0, {"model_name": "m"}),
        ("num_requests_waiting", 0.0, {"model_name": "m"}),
    ],
    "not-nim": [("prompt_tokens_total", steps(5, 50), {"model_name": "m"})],
    "kserve-python": [("request_predict_seconds_count", 5.0, {"model_name": "m"})],
    "ray-serve": [
        ("ray_serve_deployment_request_counter_total", 5.0, {"deployment": "d"}),
        ("ray_serve_replica_processing_queries", 0.0, {"deployment": "d"}),
    ],
    "router": [("llm_d_epp_request_total", 5.0, {"model_name": "m"})],
    "sleeping": [
        ("vllm:request_success_total", 5.0, {"engine": "0"}),
        ("vllm:engine_sleep_state", 0.0, {"engine": "0", "sleep_state": "awake"}),
        ("vllm:engine_sleep_state", 1.0, {"engine": "0", "sleep_state": "weights_offloaded"}),
        ("vllm:engine_sleep_state", 0.0, {"engine": "0", "sleep_state": "discard_all"}),
    ],
    "fell-asleep": [
        ("vllm:request_success_total", 5.0, {"engine": "0"}),
        ("vllm:engine_sleep_state", steps(0, 1), {"engine": "0", "sleep_state": "weights_offloaded"}),
    ],
    "one-awake": [
        ("vllm:request_success_total", 5.0, {"engine": "0"}),
        ("vllm:engine_sleep_state", 1.0, {"engine": "0", "sleep_state": "weights_offloaded"}),
        ("vllm:engine_sleep_state", 0.0, {"engine": "1", "sleep_state": "weights_offloaded"}),
    ],
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    with running_prometheus(tmp_path_factory.mktemp("requests"), history()) as running:
        yield running


def read(url: str) -> UsageTable:
    with closing(PrometheusSource(PrometheusSettings(url=url))) as source:
        return join_servers(source.read(AT))


@pytest.fixture(scope="module")
def table(engine: RunningEngine) -> UsageTable:
    return read(engine.url)


def values(table: UsageTable, pod: str) -> Mapping[tuple[Measure, Stat], float]:
    return {key: value for key, value in of_pod(table, pod).stats.items() if key[0] in SERVER_MEASURES}


def test_a_server_without_any_request_is_silent(table: UsageTable):
    assert values(table, "silent") == {
        REQUESTS: 0,
        TOKENS: 0,
        SERVED_TOKENS: 0,
        (Measure.RUNNING, Stat.LOWEST): 0,
        (Measure.RUNNING, Stat.PEAK): 0,
        (Measure.WAITING, Stat.PEAK): 0,
        SILENT: 1,
    }


def test_requests_and_tokens_of_the_window_are_counted(table: UsageTable):
    found = values(table, "served")
    assert found[REQUESTS] == pytest.approx(6, rel=0.06)  # extrapolated to the ends of the window
    assert found[TOKENS] == pytest.approx(3000, rel=0.06)
    assert found[SERVED_TOKENS] == found[TOKENS]
    assert found[SILENT] == 0


def test_prompts_that_two_halves_of_a_server_read_are_served_once(table: UsageTable):
    found = values(table, "halves-d")
    assert found[TOKENS] == pytest.approx(16_410, rel=0.06)
    assert found[SERVED_TOKENS] == pytest.approx(8400, rel=0.06)


@pytest.mark.parametrize("pod", ["tgi", "replica-a", "half-0", "without-tokens", "only-gauges"])
def test_tokens_of_which_a_part_is_not_counted_are_unknown(table: UsageTable, pod: str):
    assert SERVED_TOKENS not in values(table, pod)


@pytest.mark.parametrize("pod", ["kserve", "ray", "sglang-live", "triton", "trtllm", "dynamo-worker", "embedding"])
def test_servers_that_can_prove_silence_do_so(table: UsageTable, pod: str):
    assert values(table, pod)[SILENT] == 1


@pytest.mark.parametrize("pod", ["tgi", "nim", "kserve-python", "ray-serve", "dynamo-frontend", "router", "sglang"])
def test_servers_that_can_only_deny_silence_never_prove_it(table: UsageTable, pod: str):
    found = values(table, pod)
    assert found[SILENT] == 0
    assert found[REQUESTS] == 0


def test_a_target_that_names_the_pod_itself_never_proves_silence(table: UsageTable):
    found = values(table, "impersonated")
    assert found[SILENT] == 0
    assert found[REQUESTS] == 0


def test_a_pod_whose_second_server_was_not_scraped_is_not_silent(table: UsageTable):
    assert values(table, "two-ports")[SILENT] == 0


def test_coverage_of_a_server_is_by_the_interval_of_its_own_job(engine: RunningEngine):
    settings = PrometheusSettings(url=engine.url, scrape_interval_seconds=30)  # that of the exporters of GPUs
    with closing(PrometheusSource(settings)) as source:
        assert values(join_servers(source.read(AT)), "fast")[SILENT] == 0


def test_a_window_of_any_length_can_be_silent(engine: RunningEngine):
    with closing(PrometheusSource(PrometheusSettings(url=engine.url))) as source:
        source.read(AT)
        found = {one.container.pod: one.is_silent for one in source.read_servers(AT, seconds=612.345678)}
    assert found["long"]


def test_every_server_is_in_these_tests():
    named = {name for pages in OTHERS.values() for name, _, _ in pages}
    named |= {f"{prefix}num_requests_running" for prefix in ("vllm:", "kserve_vllm:", "ray_vllm_")}
    assert [server.name for server in SERVERS if not named & set(server.names)] == []


def test_a_gauge_that_kept_its_last_value_neither_proves_use_nor_silence(table: UsageTable):
    found = values(table, "cancelled")
    assert (found[REQUESTS], found[TOKENS], found[SILENT]) == (0, 0, 0)
    assert found[Measure.RUNNING, Stat.LOWEST] == 3


def test_a_request_between_two_scrapes_that_no_gauge_saw_is_counted(table: UsageTable):
    found = values(table, "between-scrapes")
    assert found[Measure.RUNNING, Stat.PEAK] == 0
    assert found[REQUESTS] > 0
    assert found[SILENT] == 0


def test_a_long_request_that_is_not_finished_shows_in_the_tokens(table: UsageTable):
    found = values(table, "long-request")
    assert found[REQUESTS] == 0
    assert found[TOKENS] > 0
    assert found[SILENT] == 0
    assert values(table, "sglang-decoding")[SILENT] == 0


@pytest.mark.parametrize("pod", ["hung", "livelock", "waited-once"])
def test_requests_that_run_or_wait_are_demand_however_still_the_counters_are(table: UsageTable, pod: str):
    assert values(table, pod)[SILENT] == 0


@pytest.mark.parametrize("pod", ["tgi", "sglang", "nim", "dynamo-frontend"])
def test_where_tokens_are_counted_at_the_end_of_a_request_nothing_says_that_one_is_not_served(
    table: UsageTable, pod: str
):
    found = values(table, pod)
    assert (Measure.RUNNING, Stat.LOWEST) not in found
    assert found[Measure.RUNNING, Stat.PEAK] == 0
    assert (Measure.RUNNING, Stat.LOWEST) in values(table, "sglang-live")


def test_requests_that_fail_are_requests(table: UsageTable):
    assert values(table, "triton-failing")[SILENT] == 0


@pytest.mark.parametrize("pod", ["restarted", "restarted-at-zero", "young", "in-turn"])
def test_what_a_process_counted_before_it_was_replaced_is_not_silence(table: UsageTable, pod: str):
    assert values(table, pod)[SILENT] == 0


def test_a_counter_that_appears_in_the_window_is_not_silence(table: UsageTable):
    assert values(table, "reason-appears")[SILENT] == 0


def test_a_target_that_was_down_for_a_part_of_the_window_is_not_silent(table: UsageTable):
    assert values(table, "gap")[SILENT] == 0


@pytest.mark.parametrize("pod", ["without-tokens", "without-gauges", "only-gauges"])
def test_without_one_of_the_proofs_there_is_no_silence(table: UsageTable, pod: str):
    assert values(table, pod).get(SILENT, 0) == 0


def test_a_server_without_series_is_unknown(table: UsageTable):
    assert values(table, "no-stats") == {}


def test_a_program_with_one_metric_named_like_that_of_a_nim_is_none(table: UsageTable):
    assert values(table, "not-nim") == {}


def test_a_pod_that_two_jobs_scrape_counts_once(table: UsageTable):
    assert values(table, "scraped-twice")[REQUESTS] == pytest.approx(6, rel=0.06)


def test_a_counter_under_two_names_counts_once(table: UsageTable):
    assert values(table, "trtllm-served")[REQUESTS] == pytest.approx(4, rel=0.06)


def test_a_pod_is_found_under_the_labels_of_an_annotated_scrape(table: UsageTable):
    assert values(table, "annotated")[REQUESTS] == pytest.approx(4, rel=0.06)


@pytest.mark.parametrize(("pod", "requests"), [("behind-gateway", 3), ("of-operator", 5)])
def test_a_pod_is_found_under_each_of_the_labels_that_name_it(table: UsageTable, pod: str, requests: float):
    assert values(table, pod)[REQUESTS] == pytest.approx(requests, rel=0.06)


def test_all_engines_of_a_pod_count(table: UsageTable):
    assert values(table, "two-engines")[SILENT] == 0
    assert values(table, "two-engines")[REQUESTS] == pytest.approx(2, rel=0.06)


@pytest.mark.parametrize("pod", ["lws-0", "lws-0-1", "lws-1-1"])
def test_a_leader_speaks_for_the_workers_of_its_group(table: UsageTable, pod: str):
    assert values(table, pod)[SILENT] == 1


@pytest.mark.parametrize("pod", ["half-0", "half-0-1", "half-1", "half-1-1", "replica-a", "replica-b", "prefill"])
def test_a_workload_is_not_silent_while_one_of_its_servers_is_unknown_or_serves(table: UsageTable, pod: str):
    assert values(table, pod)[SILENT] == 0


def test_a_server_sleeps_only_if_all_of_its_engines_do_for_the_whole_window(table: UsageTable):
    asleep = (Measure.ASLEEP, Stat.LOWEST)
    assert values(table, "sleeping")[asleep] == 1
    assert values(table, "fell-asleep")[asleep] == 0
    assert values(table, "one-awake")[asleep] == 0
    assert asleep not in values(table, "silent")


def test_a_query_that_fails_costs_only_requests(engine: RunningEngine, table: UsageTable):
    with faulty(engine.url) as proxy:
        proxy.fault = fails("increase(vllm:request_success_total")
        found = read(proxy.url)
    assert len(found) == len(table)
    assert REQUESTS not in values(found, "silent")
    assert SERVED_TOKENS not in values(found, "silent")
    assert values(found, "silent")[SILENT] == 0
    assert of_pod(found, "silent").coverage == 1
    assert of_pod(found, "silent").unknown_reason is None


def test_a_discovery_that_does_not_find_the_labels_of_servers_costs_only_requests(
    engine: RunningEngine, table: UsageTable
):
    with faulty(engine.url) as proxy:
        proxy.fault = fails("vllm:num_requests_running")
        found = read(proxy.url)
    assert len(found) == len(table)
    assert values(found, "silent") == {}


def test_restarts_that_cannot_be_read_prove_nothing(engine: RunningEngine):
    with faulty(engine.url) as proxy:
        proxy.fault = fails("process_start_time_seconds")
        assert values(read(proxy.url), "silent")[SILENT] == 0


def test_both_engines_prove_the_same_silence(tmp_path: Path, table: UsageTable):
    with running_victoria(tmp_path, history()) as running:
        found = read(running.url)
    assert {pod: values(found, pod).get(SILENT) for pod in {**SERVED, **OTHERS}} == {
        pod: values(table, pod).get(SILENT) for pod in {**SERVED, **OTHERS}
    }


def test_a_site_without_servers_is_asked_nothing_more(tmp_path: Path):
    def samples() -> Iterator[Sample]:
        yield from steady("up", 1, TIMES, job="gpusteward", instance="n1:9400")
        yield from gpu_pod("plain")

    with running_prometheus(tmp_path, samples()) as running, faulty(running.url) as proxy:
        found = read(proxy.url)
        asked = " ".join(proxy.queries)
    assert len(found) == 1
    assert not [name for server in SERVERS for name in server.names if name in asked]


def test_servers_are_read_on_demand_as_in_a_cycle(engine: RunningEngine):
    with closing(PrometheusSource(PrometheusSettings(url=engine.url))) as source:
        by_cycle, on_demand = source.read(AT).servers, source.read_servers(AT, seconds=WINDOW)
    assert on_demand
    assert [(one.server, one.container, one.is_silent) for one in on_demand] == [
        (one.server, one.container, one.is_silent) for one in by_cycle
    ]


def test_of_several_engines_one_that_cannot_be_read_proves_nothing(engine: RunningEngine):
    urls = (engine.url, "http://127.0.0.1:9")
    settings = make_settings(PrometheusSettings, url=urls, retries=0)
    with closing(SeveralEngines(settings)) as source, pytest.raises(SourceError):
        source.read_servers(AT, seconds=WINDOW)
