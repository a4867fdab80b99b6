"""`gpusteward serve` as a process: real command, real Prometheus, real signals."""

import os
import resource
import signal
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpusteward.analyzer.server.serve import raise_file_limit
from gpusteward.analyzer.sources.promql.on_demand_queries import AHEAD_SECONDS
from gpusteward.simulate.fleets import default_node, fleet
from tests.analyzer.engines import RunningEngine, running_prometheus
from tests.analyzer.scraped_history import scrape_history, scrape_times
from tests.analyzer.serve_process import COMMAND, RunningServe, running_serve
from tests.analyzer.sources.faulty_engine import faulty, no_response

pytestmark = pytest.mark.slow

ENVIRONMENT = {"PATH": os.environ["PATH"]}
NOWHERE = "http://127.0.0.1:9"
LONGEST_END_SECONDS = 5.0


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    """Prometheus with a small fleet, whose history reaches a few minutes beyond now."""
    times = scrape_times(1500, at=time.time() + 300)
    samples = scrape_history([default_node(1, name="showcase"), *fleet(10)], times)
    with running_prometheus(tmp_path_factory.mktemp("prometheus"), samples) as running:
        yield running


def has_result(server: RunningServe) -> bool:
    return server.get("/health").json["last_analysis"] is not None


@pytest.fixture(scope="module")
def served(engine: RunningEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServe]:
    """With a result, for tests that change no setting."""
    with running_serve(tmp_path_factory.mktemp("served"), prometheus_url=engine.url, env=ENVIRONMENT) as server:
        server.wait_for(has_result)
        yield server


def run(*flags: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *flags], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_cluster_is_read_judged_and_served(served: RunningServe):
    served.wait_for(lambda it: it.get("/health").json["status"] == "healthy")
    rows, stats = served.get("/results").json, served.get("/results/stats").json
    assert len(rows) == stats["total_gpus"] > 5
    workloads = served.get("/api/v1/workloads").json
    assert {row["activity"] for row in workloads["items"]} >= {"active", "idle"}
    page = {family.name: family for family in text_string_to_metric_families(served.get("/metrics").body.decode())}
    assert len(page["gpu_utilization_score"].samples) == len(rows)
    queries = {sample.labels["result"]: sample.value for sample in page["gpusteward_analyzer_queries"].samples}
    assert queries["ok"] > 5
    assert served.get("/api/v1/sources").json["engine"] == "Prometheus"


def test_a_chart_is_read_from_the_engine(served: RunningServe):
    row = served.get("/api/v1/workloads?activity=active&limit=1").json["items"][0]
    path = "/".join(row[part] for part in ("kind", "namespace", "name"))
    response = served.get(f"/api/v1/workloads/{path}/series?seconds=600")
    assert response.status == 200, response.body
    assert len(response.json["courses"][0]["lines"]["core_ratio"]) > 10


def test_an_unreachable_engine_is_reported_and_nothing_is_idle(tmp_path: Path):
    with running_serve(tmp_path, prometheus_url=NOWHERE, env=ENVIRONMENT) as server:
        server.wait_for(lambda it: it.get("/api/v1/health").json["cycles"]["failed"] > 0)
        assert server.get("/health").json["status"] == "degraded"
        assert server.get("/results").json == []
        assert "gpu_analysis_errors_total 1" in server.get("/metrics").body.decode()
        assert "cycle_failed" in server.log.read_text()


def test_a_requested_cycle_is_run(served: RunningServe):
    before = served.get("/api/v1/health").json["result"]["number"]
    assert served.get("/analyze").json["status"] == "triggered"
    served.wait_for(lambda it: it.get("/api/v1/health").json["result"]["number"] > before)


def test_a_slow_engine_delays_cycles_and_never_causes_two_at_once(engine: RunningEngine, tmp_path: Path):
    spans: list[tuple[str, float, float]] = []  # of each query: the end of its cycle's window, begin, end

    def respond_late(handler: Any, _expression: str) -> bool:
        began = time.monotonic()
        body = urllib.parse.urlencode(handler.form, doseq=True).encode() if handler.command == "POST" else None
        response = handler.forward(body)
        time.sleep(0.15)
        spans.extend((at, began, time.monotonic()) for at in handler.form.get("time", ()))
        handler.respond(*response)
        return True

    with faulty(engine.url) as proxy:
        proxy.fault = respond_late
        with running_serve(tmp_path, prometheus_url=proxy.url, env=ENVIRONMENT) as server:
            server.wait_for(lambda _: bool(spans))
            with ThreadPoolExecutor(10) as people:
                statuses = [*people.map(lambda _: server.get("/analyze").json["status"], range(30))]
            first_has_ended = has_result(server)
            server.wait_for(lambda it: it.get("/api/v1/health").json["cycles"]["finished"] == 2)
            cycles = server.get("/api/v1/health").json["cycles"]
    assert (set(statuses), first_has_ended) == ({"triggered"}, False)  # all requests came during the first cycle
    assert (cycles["finished"], cycles["failed"]) == (2, 0)
    # What the replicas of pools did is asked as it is before an action: up to five minutes ahead of the cycle's window.
    ends = {float(at) for at, _, _ in spans}
    ahead = {at for at in ends if any(abs(at - AHEAD_SECONDS - other) < 0.01 for other in ends)}
    windows = sorted(ends - ahead)
    assert (len(windows), len(ahead)) == (2, 2)
    asked = [(float(at) - AHEAD_SECONDS * (float(at) in ahead), begin, end) for at, begin, end in spans]
    ended = max(end for at, _, end in asked if abs(at - windows[0]) < 0.01)
    assert ended <= min(begin for at, begin, _ in asked if abs(at - windows[1]) < 0.01)


def test_a_changed_threshold_takes_effect_without_a_restart(engine: RunningEngine, tmp_path: Path):
    with running_serve(tmp_path, prometheus_url=engine.url, env=ENVIRONMENT) as server:
        server.wait_for(has_result)
        assert server.post("/config/update?threshold=60").json["updates"] == {"threshold": 60}
        server.wait_for(lambda it: it.get("/results/low").json["threshold"] == 60)
        assert server.post("/config/update?threshold=9").json["updates"] == {"threshold": 9}
        assert server.get("/config").json["thresholds"] == {"low_utilization": 9, "idle": 9}
        assert server.post("/config/update?threshold=60").json["status"] == "updated"
        assert "from 0 to 100" in server.post("/config/update?threshold=600").json["error"]
        assert server.get("/config").json["thresholds"]["low_utilization"] == 60


def test_a_changed_file_takes_effect_and_an_invalid_one_is_refused(engine: RunningEngine, tmp_path: Path):
    config = tmp_path / "config.yaml"
    config.write_text("thresholds: {low_utilization: 30}\n")
    with running_serve(tmp_path, prometheus_url=engine.url, env=ENVIRONMENT) as server:
        server.wait_for(lambda it: it.get("/results/low").json["threshold"] == 30)
        config.write_text("thresholds: {low_utilization: 41.5}\n")
        server.wait_for(lambda it: it.get("/results/low").json["threshold"] == 41.5)
        config.write_text("thresholds: {low_utilization: many, idle: 1}\n")
        server.wait_for(lambda it: it.get("/api/v1/health").json["settings_reloads"]["refused"] == 1)
        assert server.get("/config").json["thresholds"] == {"low_utilization": 41.5, "idle": 10}


def test_another_engine_in_the_file_takes_effect(engine: RunningEngine, tmp_path: Path):
    config = tmp_path / "config.yaml"
    config.write_text(f"prometheus: {{url: '{NOWHERE}'}}\n")
    with running_serve(tmp_path, env=ENVIRONMENT) as server:
        server.wait_for(lambda it: it.get("/api/v1/health").json["cycles"]["failed"] > 0)
        config.write_text(f"prometheus: {{url: '{engine.url}'}}\n")
        server.wait_for(has_result)


def test_tokens_from_a_file_are_required_and_a_changed_file_takes_effect(engine: RunningEngine, tmp_path: Path):
    tokens = tmp_path / "tokens"
    old, new = "operator-" + "1" * 20, "operator-" + "2" * 20
    tokens.write_text(f"operator: {old}\n")
    flags = (f"--tokens-file={tokens}", "--set=server.anonymous_reads=never", "--log-level=debug")
    with running_serve(tmp_path, *flags, prometheus_url=engine.url, env=ENVIRONMENT) as server:
        assert server.get("/results").status == 401
        assert server.post("/analyze").status == 401
        assert server.post("/analyze", token=old).status == 200
        tokens.write_text(f"operator: {new}\n")
        server.wait_for(lambda it: it.get("/results", token=new).status == 200)
        assert server.get("/results", token=old).status == 401
        assert not [token for token in (old, new) if token in server.log.read_text()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(engine: RunningEngine, tmp_path: Path, number: signal.Signals):
    with running_serve(tmp_path, prometheus_url=engine.url, env=ENVIRONMENT) as server:
        server.wait_for(has_result)
        server.process.send_signal(number)
        assert server.process.wait(LONGEST_END_SECONDS) == 0
        lines = server.log.read_text().splitlines()
    assert lines[-1].endswith("INFO analyzer_stopped")
    assert "Traceback" not in "".join(lines)


def test_it_ends_in_time_while_a_query_hangs_and_an_event_stream_is_open(engine: RunningEngine, tmp_path: Path):
    with faulty(engine.url) as proxy, running_serve(tmp_path, prometheus_url=proxy.url, env=ENVIRONMENT) as server:
        server.wait_for(has_result)
        proxy.fault = no_response("")
        before = len(proxy.queries)
        with urllib.request.urlopen(server.url + "/api/v1/events", timeout=20) as stream:
            assert stream.readline()
            server.get("/analyze")
            server.wait_for(lambda _: len(proxy.queries) > before)
            assert server.stop() < LONGEST_END_SECONDS
            assert server.process.returncode == 0


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("nonsense", "write PORT, :PORT, HOST:PORT"),
        ("127.0.0.1:99999", "a port up to 65535"),
        ("192.0.2.1:8080", "cannot listen there"),
        ("no-such-host.invalid:8080", "cannot listen there"),
    ],
)
def test_a_wrong_address_is_one_line_and_exit_code_2(tmp_path: Path, address: str, words: str):
    done = run("--address", address, folder=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("gpusteward: ")
    assert words in line


def test_a_port_in_use_is_one_line_and_exit_code_2(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run(f"--address=127.0.0.1:{taken.getsockname()[1]}", folder=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "in use" in done.stderr


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--intreval", "5"), "did you mean '--interval'"),
        (("--interval", "soon"), "scheduler.interval"),
        (("--tokens-file", "missing"), "missing cannot be read"),
        (
            ("--set", "prometheus.ca_file=missing", "--prometheus-url", "https://x"),
            "prometheus.ca_file: cannot use the CA file missing",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(tmp_path: Path, flags: tuple[str, ...], words: str):
    done = run(*flags, "--address=127.0.0.1:0", folder=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert words in done.stderr


def test_every_log_line_has_the_configured_format(engine: RunningEngine, tmp_path: Path):
    flags = ("--log-level=debug", "--log-format=json")
    with running_serve(tmp_path, *flags, prometheus_url=engine.url, env=ENVIRONMENT) as server:
        server.wait_for(has_result)
        server.get("/nowhere?token=secret-in-a-query")
        server.stop()
        lines = server.log.read_text().splitlines()
    assert all(line.startswith('{"time":') for line in lines)
    assert any('"event": "request_finished"' in line and '"path": "/nowhere"' in line for line in lines)
    assert "secret-in-a-query" not in "".join(lines)


def test_as_many_files_may_be_open_as_the_system_permits():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, before[1]), before[1]))
    try:
        raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
