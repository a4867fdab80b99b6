"""A real Prometheus scrapes the agent, promtool accepts the page, and dashboard 12239 shows data."""

import json
import os
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from tests.agent.test_agent_process import RunningAgent, free_port, is_ready, running

pytestmark = pytest.mark.slow

DASHBOARD_12239 = (
    'DCGM_FI_DEV_GPU_TEMP{instance=~".*", gpu=~"0"}',
    'avg(DCGM_FI_DEV_GPU_TEMP{instance=~".*", gpu=~".*"})',
    'DCGM_FI_DEV_POWER_USAGE{instance=~".*", gpu=~"0"}',
    'sum(DCGM_FI_DEV_POWER_USAGE{instance=~".*", gpu=~".*"})',
    'DCGM_FI_DEV_SM_CLOCK{instance=~".*", gpu=~"0"} * 1000000',
    'DCGM_FI_DEV_GPU_UTIL{instance=~".*", gpu=~"0"}',
    'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{instance=~".*", gpu=~"0"}',
    'DCGM_FI_DEV_FB_USED{instance=~".*", gpu=~"0"}',
)
"""The expressions of NVIDIA's Grafana dashboard, with its variables filled in."""


@pytest.fixture(scope="module")
def agent() -> Iterator[RunningAgent]:
    with running("--source=simulated", "--node-name=sim-0", env=dict(os.environ)) as one:
        one.wait_for(is_ready)
        yield one


@pytest.fixture(scope="module")
def query(
    agent: RunningAgent, component: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], list]]:
    folder = tmp_path_factory.mktemp("prometheus")
    target = agent.url.removeprefix("http://")
    jobs = [{"job_name": "agent", "honor_labels": True, "static_configs": [{"targets": [target]}]}]
    config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": jobs}
    (folder / "prometheus.yml").write_text(json.dumps(config))
    address = f"127.0.0.1:{free_port()}"
    command = [
        component("prometheus"),
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address={address}",
        "--log.level=error",
    ]
    process = subprocess.Popen(command, cwd=folder)

    def query(expression: str) -> list:
        question = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"http://{address}/api/v1/query?{question}", timeout=5) as response:
            return json.load(response)["data"]["result"]

    try:
        wait_for_data(query, process)
        yield query
    finally:
        process.terminate()
        process.wait(20)


def wait_for_data(query: Callable[[str], list], process: subprocess.Popen) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        assert process.poll() is None, "prometheus has ended"
        try:
            if query("DCGM_FI_DEV_GPU_TEMP"):
                return
        except urllib.error.HTTPError as error:
            error.close()
        except OSError:
            pass
        time.sleep(0.1)
    pytest.fail("prometheus has no data after 30 s")


@pytest.mark.parametrize("expression", DASHBOARD_12239)
def test_every_panel_of_dashboard_12239_shows_data(query: Callable[[str], list], expression: str):
    assert query(expression)


def test_the_target_is_up_and_its_samples_are_not_duplicates(query: Callable[[str], list]):
    assert [row["value"][1] for row in query("up")] == ["1"]
    assert query("scrape_samples_scraped - scrape_samples_post_metric_relabeling")[0]["value"][1] == "0"


def test_the_parts_sum_to_the_device_in_promql_too(query: Callable[[str], list]):
    difference = "abs(sum by (uuid) (gpusteward_use_utilization_ratio) - on (uuid) gpusteward_gpu_utilization_ratio)"
    rows = query(difference)
    assert rows
    assert all(float(row["value"][1]) < 1e-5 for row in rows)


def test_pods_keep_their_own_labels(query: Callable[[str], list]):
    rows = query('DCGM_FI_DEV_GPU_UTIL{pod!=""}')
    assert rows
    assert all(row["metric"]["Hostname"] == "sim-0" and row["metric"]["namespace"] for row in rows)


def test_promtool_accepts_our_own_names(agent: RunningAgent, component: Callable[[str], str]):
    page = agent.get("/metrics")[1]
    own = "".join(f"{line}\n" for line in page.splitlines() if "gpusteward_" in line.split("{")[0])
    checked = subprocess.run(
        [component("promtool"), "check", "metrics"], check=False, input=own, capture_output=True, text=True, timeout=30
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_a_load_started_by_hand_is_visible_in_the_metrics():
    with running("--source=simulated", "--simulate-load=0=0.97", env=dict(os.environ)) as loaded:
        loaded.wait_for(lambda agent: max(host_utilizations(agent), default=0) >= 0.9)


def host_utilizations(agent: RunningAgent) -> list[float]:
    lines = agent.get("/metrics")[1].splitlines()
    own = [line for line in lines if line.startswith("gpusteward_use_utilization_ratio{") and 'by="host"' in line]
    return [float(line.rsplit(" ", 1)[1]) for line in own]
