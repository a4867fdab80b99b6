"""`gpusteward doctor` as a program, and its checks on real sockets, files and servers."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from gpusteward.cli.api.client import Peer, make_client
from gpusteward.cli.doctor import engine, node
from gpusteward.cli.doctor.check_results import CheckResult, CheckStatus
from gpusteward.cli.main import main
from tests.agent.test_agent_process import free_port
from tests.analyzer.api.sample_results import small_result
from tests.analyzer.api.server import Api, running_api
from tests.analyzer.engines import running_prometheus
from tests.cli.golden_files import assert_golden
from tests.fakes import nvml_scenarios as nvml
from tests.fakes.kubelet import FakeKubelet, device_claim, response
from tests.fakes.nvml_library import FakeNvml, environment
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

DOCTOR = (sys.executable, "-m", "gpusteward.cli.main", "doctor")


def diagnose(*flags: str, env: Mapping[str, str] | None = None) -> tuple[int, dict[str, list[dict[str, str]]]]:
    """Exit code and results of the program, by check."""
    done = subprocess.run(
        [*DOCTOR, "-o", "json", *flags],
        env=dict(env or os.environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    found: dict[str, list[dict[str, str]]] = {}
    for row in json.loads(done.stdout):
        found.setdefault(row["check"], []).append(row)
    return done.returncode, found


def statuses(results: Iterable[CheckResult]) -> list[CheckStatus]:
    return [result.status for result in results]


def test_it_runs_without_any_component() -> None:
    code, found = diagnose("--server", "127.0.0.1:1", "--agent", "127.0.0.1:1")
    assert set(found) >= {"driver", "devices", "processes", "kubelet", "analyzer", "agent", "rights", "prometheus"}
    assert found["analyzer"][0]["status"] == "fail", "its address was given"
    assert code == 1


def test_a_missing_component_without_an_address_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    _, found = diagnose()
    for check in ("rights", "prometheus"):
        assert found[check][0]["status"] == "skip"


def test_it_needs_no_optional_library(tmp_path: Path) -> None:
    """Neither those of the agent and the analyzer, nor rich."""
    program = (
        "import sys\n"
        "for name in ('pynvml', 'hpack', 'msgspec', 'pydantic', 'numpy', 'rich', 'textual', 'yaml'):\n"
        "    sys.modules[name] = None\n"
        "from gpusteward.cli.main import main\n"
        "sys.exit(main(['doctor']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "pip install gpusteward" in done.stdout


def test_every_failure_has_a_fix(tmp_path: Path) -> None:
    flags = ("--server", "127.0.0.1:1", "--agent", "127.0.0.1:1", "--prometheus-url", "127.0.0.1:1")
    _, found = diagnose(*flags, "--kubelet-socket", str(tmp_path / "none"), "--proc", str(tmp_path / "none"))
    failed = [row for rows in found.values() for row in rows if row["status"] == "fail"]
    assert {row["check"] for row in failed} == {"analyzer", "agent", "prometheus", "kubelet", "processes"}
    assert all(row["mend"] for row in failed)


def test_the_table_matches_the_golden_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the lines that are the same on every machine: components with an address that do not exist."""
    flags = ["--server", "127.0.0.1:1", "--agent", "127.0.0.1:1", "--prometheus-url", "127.0.0.1:1"]
    main(["doctor", *flags, "--kubelet-socket", "/none", "--proc", "/none"])
    printed = capsys.readouterr().out
    lines = printed[printed.index("fail  processes") :].splitlines()
    assert_golden("doctor.txt", "\n".join(line for line in lines if "cgroups" not in line) + "\n")


def test_a_driver_is_reported_with_its_gpus(tmp_path: Path) -> None:
    nvml.a100x8().write(tmp_path / "scenario")
    _, found = diagnose(env=environment(tmp_path / "scenario"))
    assert found["driver"][0]["status"] == "ok"
    assert found["driver"][0]["finding"].startswith("8 GPUs, driver ")


def test_a_gpu_that_fell_off_the_bus_is_a_failure(fake_nvml: FakeNvml) -> None:
    fake_nvml.load(nvml.with_lost_gpu(2))
    read, lost, *_families = node.check_nvml()
    assert (read.status, lost.status) == (CheckStatus.OK, CheckStatus.FAIL)
    assert "GPU 2 is lost" in lost.finding


def test_the_families_that_a_gpu_model_does_not_provide_are_named(fake_nvml: FakeNvml) -> None:
    fake_nvml.load(nvml.Scenario([nvml.a100(0), nvml.a100(1), nvml.h100(2)]))
    (found,) = [each for each in node.check_nvml() if each.check == "families"]
    assert found.status is CheckStatus.OK
    assert found.finding.startswith("NVIDIA A100-SXM4-80GB does not provide: DCGM_FI_PROF_GR_ENGINE_ACTIVE, ")
    assert "--dcgm-hostengine" in found.mend


def test_a_gpu_without_a_driver_is_a_failure_and_no_gpu_is_skipped(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    fake_nvml.load(nvml.no_driver())
    assert statuses(node.check_nvml(pci=tmp_path)) == [CheckStatus.SKIP]
    card = tmp_path / "0000:17:00.0"
    card.mkdir()
    (card / "vendor").write_text("0x10de\n")
    (card / "class").write_text("0x030200\n")
    assert statuses(node.check_nvml(pci=tmp_path)) == [CheckStatus.FAIL]


def test_a_hanging_driver_call_is_abandoned(fake_nvml: FakeNvml) -> None:
    fake_nvml.load(nvml.hung_call())
    try:
        (found,) = node.check_nvml(timeout_seconds=0.3)
    finally:
        fake_nvml.change(nvml.a100x8())
    assert found.status is CheckStatus.FAIL
    assert "did not respond within 0 s" in found.finding
    wait_until(lambda: fake_nvml.open_handles == 0)


def test_devices_that_cannot_be_opened_are_failures(tmp_path: Path) -> None:
    assert statuses(node.check_devices(tmp_path)) == [CheckStatus.SKIP]
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert statuses(node.check_devices(tmp_path)) == [CheckStatus.OK]
    if os.geteuid() != 0:
        (tmp_path / "nvidia0").chmod(0)
        assert statuses(node.check_devices(tmp_path)) == [CheckStatus.FAIL]


def test_processes_and_their_cgroups_are_checked(tmp_path: Path) -> None:
    assert statuses(node.check_proc()) == [CheckStatus.OK]
    assert statuses(node.check_proc(tmp_path / "none")) == [CheckStatus.FAIL]
    for pid in (1, 7):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text("0::/\n")
    assert statuses(node.check_proc(tmp_path, in_container=True)) == [CheckStatus.WARN], "no kthreadd: no hostPID"
    assert statuses(node.check_proc(tmp_path)) == [CheckStatus.OK]


def test_the_kubelet_is_queried_over_its_socket(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.sock"
    assert statuses(node.check_kubelet(path, is_node=False)) == [CheckStatus.SKIP]
    assert statuses(node.check_kubelet(path, is_node=True)) == [CheckStatus.FAIL]
    pods = response(device_claim("team", "pod-1", "main", "GPU-1", "GPU-2"))
    with FakeKubelet(path, pods):
        (found,) = node.check_kubelet(path, is_node=True)
    assert found.status is CheckStatus.OK
    assert found.finding == "it responds; 2 GPU claims on this node"
    assert statuses(node.check_kubelet(path, is_node=True)) == [CheckStatus.FAIL], "no process listens on the socket"


def test_a_healthy_analyzer_is_ok_and_its_clock_is_compared() -> None:
    with running_api(small_result(at=time.time())) as api:
        code, found = diagnose("--server", api.url)
    assert [row["status"] for row in found["analyzer"]] == ["ok"]
    assert "5 allocations" in found["analyzer"][0]["finding"]
    assert [row["status"] for row in found["samples"]] == ["ok"], "an allocation that cannot be measured is no warning"
    assert found["samples"][0]["finding"].startswith(
        "sample coverage 100% of 4 allocations; the utilization of 1 other"
    )
    assert found["clock"][0]["status"] == "ok"
    assert re.fullmatch(r"within [1-3] s of this machine: analyzer", found["clock"][0]["finding"])
    assert code == 0


def test_an_analyzer_with_an_outdated_result_is_a_warning() -> None:
    result = small_result()
    with running_api(result, clock=lambda: result.at + 3600) as api:
        _, found = diagnose("--server", api.url)
    assert found["analyzer"][0]["status"] == "warn"
    assert "The last result is 60 min old" in found["data"][0]["finding"]
    assert "scheduler.interval" in found["data"][0]["mend"]


def test_an_agent_that_is_not_ready_is_a_failure(node_url: str) -> None:
    _, found = diagnose("--agent", node_url)
    assert found["agent"][0]["status"] == "ok"
    with running_api(None) as api:  # an analyzer where the agent should be
        code, found = diagnose("--agent", api.url)
    assert found["agent"][0]["status"] == "fail"
    assert code == 1


@pytest.fixture(scope="module")
def prometheus_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Scraped every 90 s, up to now."""
    now = time.time()
    labels = '{job="dcgm",instance="n1:9400",gpu="0"}'
    samples = [
        (name, tags, 1.0, now - 90 * number)
        for name, tags in (("DCGM_FI_DEV_GPU_UTIL", labels), ("up", '{job="dcgm",instance="n1:9400"}'))
        for number in range(39, -1, -1)
    ]
    with running_prometheus(tmp_path_factory.mktemp("prometheus"), samples) as one:
        yield one.url


def test_prometheus_is_queried_for_names_and_intervals(prometheus_url: str) -> None:
    results = list(engine.check_engine(make_client(Peer.PROMETHEUS, prometheus_url), origin="--prometheus-url"))
    assert [(one.check, one.status) for one in results] == [
        ("prometheus", "ok"),
        ("metrics", "ok"),
        ("video engines", "warn"),
        ("scrape interval", "warn"),
    ]
    assert results[1].finding == "found GPU metrics of DCGM"
    assert results[2].finding == "DCGM_FI_DEV_ENC_UTIL, DCGM_FI_DEV_DEC_UTIL are not exported"
    assert results[3].finding.startswith("job dcgm is scraped every ")
    assert "30s or less" in results[3].mend


@pytest.mark.parametrize(("step", "status"), [(60, "warn"), (30, "warn"), (15, "ok")])
def test_profiling_fields_that_are_scraped_less_often_than_averaged_are_named(
    tmp_path: Path, step: int, status: str
) -> None:
    now, labels = time.time(), '{job="dcgm",instance="n1:9400",gpu="0"}'
    names = ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_DEC_UTIL")
    samples = [
        (name, tags, 1.0, now - step * number)
        for name, tags in (*((name, labels) for name in names), ("up", '{job="dcgm",instance="n1:9400"}'))
        for number in range(30, -1, -1)
    ]
    with running_prometheus(tmp_path, samples) as one:
        found = engine.check_engine(make_client(Peer.PROMETHEUS, one.url), origin="--prometheus-url")
        results = list(found)
    assert [each.check for each in results] == ["prometheus", "metrics", "scrape interval"]
    assert results[-1].status == status
    assert "judge.proof.dcgm_interval_seconds" in (results[-1].mend if status == "warn" else results[-1].finding)


def test_a_prometheus_without_gpu_metrics_is_a_failure(tmp_path: Path) -> None:
    with running_prometheus(tmp_path, [("up", '{job="other"}', 1.0, time.time())]) as other:
        results = list(engine.check_engine(make_client(Peer.PROMETHEUS, other.url), origin="PROM_URL"))
    assert statuses(results) == [CheckStatus.OK, CheckStatus.FAIL]
    assert "ServiceMonitor" in results[1].mend


def test_a_tenant_without_any_series_is_told_apart_from_a_site_without_gpus(tmp_path: Path) -> None:
    with running_prometheus(tmp_path) as empty:
        results = list(engine.check_engine(make_client(Peer.PROMETHEUS, empty.url), origin="PROM_URL"))
    assert statuses(results) == [CheckStatus.OK, CheckStatus.FAIL]
    assert "X-Scope-OrgID" in results[1].mend


def test_a_server_that_is_not_prometheus_is_a_failure(analyzer: Api) -> None:
    assert statuses(engine.check_engine(make_client(Peer.PROMETHEUS, analyzer.url), origin="PROM_URL")) == [
        CheckStatus.FAIL
    ]


def test_a_closed_port_is_a_failure() -> None:
    client = make_client(Peer.PROMETHEUS, f"http://127.0.0.1:{free_port()}")
    assert statuses(engine.check_engine(client, origin="PROM_URL")) == [CheckStatus.FAIL]
