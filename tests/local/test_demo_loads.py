"""Loads in a running demo: in which pods they run, and what the pages of their nodes show."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from gpusteward.core.errors import ConfigurationError
from gpusteward.local.demo_servers import serve_fleet
from gpusteward.local.simulated_fleet import DemoLoads, LoadRequest, SimulatedFleet, StartedLoad
from gpusteward.simulate.applications import draw_application
from gpusteward.simulate.assembly import GpuPlan
from gpusteward.simulate.fleets import fleet as simulate_fleet
from gpusteward.simulate.fleets import whole_gpu
from gpusteward.simulate.models import MODELS
from gpusteward.simulate.nodes import SimulatedNode
from gpusteward.simulate.seeded_random import SeededRandom
from gpusteward.simulate.workloads import Kind

NOW = 1_790_000_000.0
NODES, SEED = 40, 7  # as in the demo


@pytest.fixture
def fleet() -> SimulatedFleet:
    return SimulatedFleet(simulate_fleet(NODES, SEED, demo_at=NOW), ready_timeout_seconds=5)


def read_use(fleet: SimulatedFleet, started: StartedLoad, at: float) -> list[float]:
    """The utilization of each GPU by the workload, from the pages of its nodes."""
    nodes = sorted({gpu.node for gpu in started.gpus})
    families = [each for node in nodes for each in parse(fleet.render_metrics(node, at).decode())]
    return [
        sample.value
        for family in families
        if family.name == "gpusteward_use_utilization_ratio"
        for sample in family.samples
        if sample.labels.get("workload") == started.name and sample.labels.get("namespace") == started.namespace
    ]


def find_workload(fleet: SimulatedFleet, stem: str) -> str:
    held = (each.allocation.container.workload for node in fleet.nodes for each in node.ownerships(NOW))
    return next(f"{each.namespace}/{each.kind}/{each.name}" for each in held if each and each.name.startswith(stem))


def test_a_load_without_a_workload_is_a_new_pod_on_a_free_gpu(fleet: SimulatedFleet):
    started = DemoLoads(fleet).start(LoadRequest(80, 5), NOW)
    assert (started.kind, len(started.gpus)) == ("Job", 1)
    assert read_use(fleet, started, NOW + 30) == [0.8]
    assert read_use(fleet, started, NOW + 299) == [0.8]
    assert read_use(fleet, started, NOW + 301) == [], "the pod is gone"


def test_two_loads_take_two_gpus(fleet: SimulatedFleet):
    loads = DemoLoads(fleet)
    first, second = (loads.start(LoadRequest(50, 5), NOW) for _ in range(2))
    assert first.gpus != second.gpus
    assert first.name != second.name


@pytest.mark.parametrize("stem", ["demo-llama", "debug-shell", "lab-unused", "gpu-holder"])
def test_a_load_in_a_workload_is_work_of_its_pods(fleet: SimulatedFleet, stem: str):
    """Also in a pod that had no process, and on a shared GPU; a MIG instance is covered by `lab-unused`."""
    started = DemoLoads(fleet).start(LoadRequest(70, 5, find_workload(fleet, stem)), NOW)
    during = read_use(fleet, started, NOW + 60)
    assert during
    assert all(0.69 <= each <= 0.8 for each in during), during
    assert all(each < 0.31 for each in read_use(fleet, started, NOW + 320)), "as before"


def test_a_load_in_a_workload_of_several_nodes_uses_all_its_gpus(fleet: SimulatedFleet):
    trained = next(each.allocation.container.workload for each in fleet.nodes[0].ownerships(NOW))
    assert trained is not None
    started = DemoLoads(fleet).start(LoadRequest(100, 1, trained.name), NOW)
    assert {gpu.node for gpu in started.gpus} == {node.name for node in fleet.nodes[:2]}
    assert read_use(fleet, started, NOW + 30) == [1.0] * len(started.gpus)


def test_a_second_load_in_a_workload_adds_one_process_per_gpu(fleet: SimulatedFleet):
    loads, name = DemoLoads(fleet), find_workload(fleet, "demo-llama")
    started = loads.start(LoadRequest(30, 5, name), NOW)
    loads.start(LoadRequest(40, 5, name), NOW)
    node = next(each for each in fleet.nodes if each.name == started.gpus[0].node)
    processes = [each for each in node.snapshot(NOW + 60).processes if each.name == "gpusteward-load"]
    assert len(processes) == 2
    assert all(0.55 <= each <= 0.6 for each in read_use(fleet, started, NOW + 60)), "40 % and what that leaves of 30 %"


def test_the_allocations_are_the_same_with_a_load_in_a_workload(fleet: SimulatedFleet):
    name = find_workload(fleet, "demo-llama")
    before = [node.snapshot(NOW + 60).allocations for node in fleet.nodes]
    DemoLoads(fleet).start(LoadRequest(70, 5, name), NOW)
    assert [node.snapshot(NOW + 60).allocations for node in fleet.nodes] == before


def test_a_workload_that_holds_no_gpu_is_refused(fleet: SimulatedFleet):
    with pytest.raises(ConfigurationError, match="no workload named 'missing' holds a GPU"):
        DemoLoads(fleet).start(LoadRequest(70, 5, "missing"), NOW)


def test_a_name_of_several_workloads_is_refused_with_their_full_names():
    one = draw_application(Kind.PARKED, SeededRandom(1))
    plans = [whole_gpu(replace(one, namespace=namespace)) for namespace in ("speech", "vision")]
    twice = SimulatedFleet([SimulatedNode("n", plans, model=MODELS["t4"], seed=1)], ready_timeout_seconds=5)
    name = find_workload(twice, "").rpartition("/")[2]
    with pytest.raises(ConfigurationError, match=f"several workloads are named '{name}': speech/.*/{name}, vision/.*"):
        DemoLoads(twice).start(LoadRequest(70, 5, name), NOW)
    assert DemoLoads(twice).start(LoadRequest(70, 5, f"speech/{name}"), NOW).namespace == "speech"


def test_without_a_free_gpu_it_says_what_to_do():
    one = SimulatedFleet([SimulatedNode("n", [GpuPlan()], model=MODELS["t4"], seed=1)], ready_timeout_seconds=5)
    loads = DemoLoads(one)
    loads.start(LoadRequest(70, 2), NOW)
    with pytest.raises(ConfigurationError, match="no GPU of the demo is free for that long; name a workload"):
        loads.start(LoadRequest(70, 1), NOW + 60)
    assert loads.start(LoadRequest(70, 1), NOW + 121).gpus, "the first one has ended"


@pytest.fixture
def url(fleet: SimulatedFleet) -> Iterator[tuple[str, str]]:
    """The address for requests, and the token."""
    loads = DemoLoads(fleet)
    with serve_fleet(fleet, control=loads) as targets:
        yield targets[0].rsplit("/", 2)[0] + "/load", loads.token


def post(url: str, token: str, body: bytes) -> bytes:
    request = urllib.request.Request(url, body, {"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=10) as response:
        return bytes(response.read())


def test_it_takes_requests_with_the_token(url: tuple[str, str]):
    started = json.loads(post(*url, b'{"share_percent": 80, "minutes": 5}'))
    assert (started["kind"], len(started["gpus"])) == ("Job", 1)


@pytest.mark.parametrize(
    ("token", "body", "status"),
    [
        ("wrong", b'{"share_percent": 80, "minutes": 5}', 401),
        ("", b'{"share_percent": 80, "minutes": 5}', 401),
        (None, b'{"share_percent": 101, "minutes": 5}', 400),
        (None, b'{"share_percent": 80, "minutes": 0}', 400),
        (None, b'{"share_percent": 80, "minutes": 5, "colour": "red"}', 400),
        (None, b"[]", 400),
        (None, b" " * 5000, 400),
    ],
)
def test_it_refuses_other_requests(url: tuple[str, str], token: str | None, body: bytes, status: int):
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(url[0], url[1] if token is None else token, body)
    refused.value.close()
    assert refused.value.code == status
