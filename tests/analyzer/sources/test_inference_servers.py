"""From values of servers to the rows of their workloads. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from math import nan

import numpy as np
import pytest

from gpusteward.analyzer.sources.usage.inference_servers import SERVERS, ServerReading, ServerValues, join_servers
from gpusteward.analyzer.tables import ServerPod, UsageTable
from gpusteward.core.node.containers import Container, Workload
from gpusteward.core.usages import AllocationKey, Measure, Stat
from tests.analyzer.usage_tables import resting, table_of

SILENT, REQUESTS = (Measure.SILENT, Stat.LOWEST), (Measure.REQUESTS, Stat.COUNT)
VLLM = next(each for each in SERVERS if each.name == "vLLM")


def hold(pod: str, owner: str = "llm", *, kind: str = "LeaderWorkerSet", cluster: str = "") -> AllocationKey:
    workload = Workload(kind, "team", owner, cluster)
    return AllocationKey(f"GPU-{cluster}-{pod}", "", Container("team", pod, workload=workload, cluster=cluster), "n1")


def server(
    pod: str, requests: float = 0.0, *, kind: str = "vLLM", cluster: str = "", is_silent: bool | None = None
) -> ServerPod:
    proven = not requests if is_silent is None else is_silent
    return ServerPod(kind, Container("team", pod, cluster=cluster), requests=requests, is_silent=proven)


def join(held: Sequence[AllocationKey], *servers: ServerPod) -> UsageTable:
    table = table_of(*[resting()] * len(held), allocations=held)
    return join_servers(replace(table, servers=servers))


def silent(table: UsageTable) -> list[float]:
    return table.column(*SILENT).tolist()


def test_without_servers_the_table_is_the_same():
    table = table_of(resting())
    assert join_servers(table) is table


def test_servers_of_other_workloads_change_nothing():
    table = join([hold("a")], server("elsewhere", 5))
    assert np.isnan(table.column(*SILENT)).all()
    assert table.stats.keys() == table_of(resting()).stats.keys()


def test_a_worker_belongs_to_the_leader_of_its_group_and_of_its_workload():
    assert silent(join([hold("llm-0"), hold("llm-0-1"), hold("llm-0-2")], server("llm-0"))) == [1, 1, 1]
    assert silent(join([hold("llm-0"), hold("llm-1-1")], server("llm-0"))) == [0, 0]
    other = join([hold("llm-0-1", "another")], server("llm-0"))
    assert np.isnan(other.column(*SILENT)).all(), "its owner is not known to be the same"


@pytest.mark.parametrize("pod", ["web-7d9f-x2x4v", "web-7d9f-"])
def test_replicas_of_a_deployment_have_no_leader(pod: str):
    assert silent(join([hold("web-7d9f"), hold(pod)], server("web-7d9f"))) == [0, 0]


def test_a_router_and_the_engines_behind_it_count_the_same_requests():
    held, router = [hold("a"), hold("b")], server("router", 7, kind="llm-d router")
    router = replace(router, container=replace(router.container, workload=held[0].container.workload))
    assert join(held, server("a", 3), server("b", 4), router).column(*REQUESTS).tolist() == [7.0, 7.0]
    of_pod = join(held[:1], server("a", 3), server("a", 5, kind="Dynamo worker"))
    assert of_pod.column(*REQUESTS).tolist() == [5.0]


def test_a_router_of_the_same_workload_with_requests_denies_the_silence_of_its_engines():
    router = server("router", 2, kind="llm-d router", is_silent=False)
    owned = replace(router, container=replace(router.container, workload=Workload("LeaderWorkerSet", "team", "llm")))
    assert silent(join([hold("a")], server("a"), owned)) == [0]
    assert silent(join([hold("a")], server("a"), replace(owned, requests=0))) == [1]
    assert silent(join([hold("a")], server("a"), replace(owned, requests=nan))) == [1]


def test_pods_of_one_name_in_two_clusters_are_two():
    held = [hold("a", cluster="one"), hold("a", cluster="other")]
    assert silent(join(held, server("a", cluster="one"), server("a", 3, cluster="other"))) == [1, 0]
    assert np.isnan(join(held, server("a")).column(*SILENT)).all(), "a series without a cluster may be of either"


def test_where_only_one_side_names_the_cluster_it_is_the_same():
    assert silent(join([hold("a", cluster="one")], server("a"))) == [1]
    assert silent(join([hold("a")], server("a", cluster="one"))) == [1]
    assert np.isnan(join([hold("a", cluster="one")], server("a", cluster="other")).column(*SILENT)).all()


COMPLETE = ServerValues(
    grown={ServerReading.REQUESTS: 0, ServerReading.TOKENS: 0},
    highest={ServerReading.RUNNING: 0, ServerReading.WAITING: 0},
    coverage=0.95,
    restarts=0,
)


@pytest.mark.parametrize(
    "changes",
    [
        {"grown": {ServerReading.REQUESTS: 0}},
        {"grown": {ServerReading.REQUESTS: 0, ServerReading.TOKENS: 1}},
        {"grown": {ServerReading.REQUESTS: 0, ServerReading.TOKENS: 0, ServerReading.STEPS: 2}},
        {"highest": {ServerReading.RUNNING: 0}},
        {"highest": {ServerReading.RUNNING: 0, ServerReading.WAITING: 1}},
        {"coverage": 0.85},
        {"restarts": 1},
        {"restarts": None},
    ],
    ids=str,
)
def test_silence_needs_all_of_its_proofs(changes: dict[str, object]):
    assert COMPLETE.is_silent(VLLM.proof)
    assert not replace(COMPLETE, **changes).is_silent(VLLM.proof)  # type: ignore[arg-type]
    assert not COMPLETE.is_silent(())


def test_a_worker_with_an_unproven_server_of_its_own_is_not_covered_by_its_leader():
    own = replace(server("llm-0-1"), requests=np.nan, is_silent=False)  # its target was down
    assert silent(join([hold("llm-0"), hold("llm-0-1")], server("llm-0"), own)) == [0, 0]


def test_a_pod_with_two_servers_is_silent_only_if_both_prove_it():
    own = replace(server("a", kind="TensorRT-LLM"), requests=np.nan, is_silent=False)
    assert silent(join([hold("a", kind="Deployment")], server("a"), own)) == [0]
