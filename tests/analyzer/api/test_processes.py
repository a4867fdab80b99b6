"""/api/v1/workloads/.../processes: processes that agents report, pods that none reports, agents that fail."""

from collections.abc import Collection
from dataclasses import replace

import pytest

from gpusteward.analyzer.api.v1.gpus.processes import MOST_PROCESSES
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.sources.live_readings import PodProcesses, RunningProcess
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.core.node.containers import Workload
from tests.analyzer.api.sample_results import hold, small_result
from tests.analyzer.api.server import FakeSource, make_result, running_api
from tests.analyzer.usage_tables import resting, table_of

TRAINER = "/api/v1/workloads/Job/vision/trainer/processes"
SWARM = Workload("Job", "team", "swarm")


def swarm(pods: int) -> object:
    held = [hold(f"GPU-{number}", SWARM, namespace="team", pod=f"swarm-{number}") for number in range(pods)]
    return make_result(table_of(*[resting()] * pods, allocations=held))


def test_each_process_comes_with_its_gpu_and_its_use():
    with running_api(small_result()) as api:
        response = api.get(TRAINER).json
    assert response["processes"] == [
        {
            "cluster": "",
            "namespace": "vision",
            "pod": "trainer-0",
            "container": "main",
            "node": "n1",
            "gpu": "GPU-a",
            "index": "0",
            "pid": 4000,
            "process": "python",
            "memory_bytes": 8.0 * 2**30,
            "sm_ratio": 0.25,
            "outside_allocation": False,
            "works_for": "",
        }
    ]
    assert (response["total"], response["untold"], response["pods"]) == (1, [], 1)


def test_the_processes_of_a_node_are_those_of_the_pods_on_it():
    with running_api(small_result()) as api:
        held = {row["pod"] for row in api.get("/api/v1/allocations?node=n1&limit=100").json["items"]}
        response = api.get("/api/v1/nodes/n1/processes").json
        assert api.get("/api/v1/nodes/n-unknown/processes").status == 404
        assert api.get("/api/v1/nodes/n1/processes?cluster=other").status == 404
    assert response["pods"] == len(held) > 0
    assert {row["pod"] for row in response["processes"]} | set(response["untold"]) <= held
    assert response["processes"]


def pair_result() -> Result:
    """A pod that holds a GPU for another one, and one that holds a GPU for itself."""
    held = [hold(f"GPU-{number}", SWARM, namespace="team", pod=f"swarm-{number}") for number in (0, 1)]
    held = [replace(held[0], used_by="launcher-0"), replace(held[1], gpu_index="1")]
    return make_result(table_of(resting(), resting(), allocations=held))


def on_gpu(pod: str, index: str, pid: int) -> RunningProcess:
    return RunningProcess(PodKey("team", pod), "main", "n1", index, f"GPU-{index}", "", "", pid, "x")


@pytest.mark.parametrize("path", ["workloads/Job/team/swarm", "nodes/n1"])
def test_the_processes_of_the_other_pod_of_a_pair_are_shown_on_the_gpu_of_its_holder_only(path: str):
    running = [on_gpu("launcher-0", "0", 7), on_gpu("launcher-0", "1", 8), on_gpu("swarm-1", "1", 9)]
    source = FakeSource(
        running=PodProcesses(running, frozenset({PodKey("team", "swarm-0"), PodKey("team", "swarm-1")}))
    )
    with running_api(pair_result(), source=source) as api:
        response = api.get(f"/api/v1/{path}/processes").json
        rows = api.get("/api/v1/allocations?sort=pod").json["items"]
    shown = [(one["pid"], one["pod"], one["works_for"]) for one in response["processes"]]
    assert shown == [(7, "launcher-0", "swarm-0"), (9, "swarm-1", "")]
    assert (response["total"], response["pods"], response["untold"]) == (2, 2, [])
    assert [(row["pod"], row["used_by"]) for row in rows] == [("swarm-0", "launcher-0"), ("swarm-1", "")]


def test_the_other_pod_of_a_pair_is_read_with_the_page_of_its_holder_only():
    requested: list[list[str]] = []

    class CountingSource(FakeSource):
        def read_processes(self, pods: Collection[PodKey], at: float) -> PodProcesses:
            requested.append([pod.name for pod in pods])
            return PodProcesses(reported=frozenset(pods))

    with running_api(pair_result(), source=CountingSource()) as api:
        for offset in (0, 1):
            api.get(f"/api/v1/workloads/Job/team/swarm/processes?limit=1&offset={offset}")
    assert requested == [["swarm-0", "launcher-0"], ["swarm-1"]]


def test_pods_that_no_agent_reports_are_listed_and_not_shown_as_empty():
    with running_api(small_result(), source=FakeSource(running=PodProcesses())) as api:
        response = api.get(TRAINER).json
    assert (response["processes"], response["untold"]) == ([], ["trainer-0"])


def test_a_large_workload_is_read_in_pages():
    requested: list[list[str]] = []

    class CountingSource(FakeSource):
        def read_processes(self, pods: Collection[PodKey], at: float) -> PodProcesses:
            requested.append([pod.name for pod in pods])
            return PodProcesses(reported=frozenset(pods))

    with running_api(swarm(40), source=CountingSource()) as api:
        response = api.get("/api/v1/workloads/Job/team/swarm/processes").json
        api.get("/api/v1/workloads/Job/team/swarm/processes?limit=30&offset=30")
        assert api.get("/api/v1/workloads/Job/team/swarm/processes?limit=257").status == 422
    assert (response["pods"], response["untold"]) == (40, [])
    assert (len(requested[0]), len(requested[1])) == (16, 10)


def test_a_response_is_limited_and_has_the_total():
    pod = PodKey("team", "swarm-0")
    many = [RunningProcess(pod, "main", "n1", "0", "GPU-a", "", "", pid, "x") for pid in range(MOST_PROCESSES + 5)]
    with running_api(swarm(1), source=FakeSource(running=PodProcesses(many, frozenset({pod})))) as api:
        response = api.get("/api/v1/workloads/Job/team/swarm/processes").json
    assert (len(response["processes"]), response["total"]) == (MOST_PROCESSES, MOST_PROCESSES + 5)
    assert response["processes"][0]["memory_bytes"] is None


def test_a_mig_instance_is_named_by_index_profile_and_instance():
    pod = PodKey("team", "swarm-0")
    process = RunningProcess(pod, "main", "n1", "3", "MIG-b", "7", "1g.10gb", 12, "python")
    with running_api(swarm(1), source=FakeSource(running=PodProcesses([process], frozenset({pod})))) as api:
        (process,) = api.get("/api/v1/workloads/Job/team/swarm/processes").json["processes"]
    assert (process["index"], process["gpu"]) == ("3/1g.10gb/7", "MIG-b")


def test_agents_that_do_not_respond_and_unknown_workloads_are_problems():
    source = FakeSource(processes_failure="none of 2 agents responded: no connection")
    with running_api(small_result(), source=source) as api:
        response = api.get(TRAINER)
        assert (response.status, response.json["type"]) == (503, "urn:gpusteward:problem:engine-failed")
        assert api.get(TRAINER.replace("trainer", "unknown")).status == 404
        assert api.get("/results").status == 200
