"""The HTTP server of simulated nodes."""

import json
import time
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from gpusteward.cli.commands import ps
from gpusteward.local.demo_servers import serve_fleet
from gpusteward.local.simulated_fleet import SimulatedFleet
from gpusteward.simulate.fleets import fleet
from gpusteward.simulate.nodes import SimulatedNode


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read().decode()


def test_every_node_has_its_own_page_with_both_dialects():
    simulated = SimulatedFleet(fleet(3, 1), ready_timeout_seconds=5)
    simulated.set_ready()
    with serve_fleet(simulated) as targets:
        pages = [fetch(target) for target in targets]
    for node, page in zip(simulated.nodes, pages, strict=True):
        names = {family.name for family in parse(page)}
        assert {"DCGM_FI_DEV_FB_USED", "gpusteward_allocation_info"} <= names
        assert f'Hostname="{node.name}"' in page


def test_ps_reads_a_simulated_node_like_an_agent(capsys: pytest.CaptureFixture[str]):
    simulated = SimulatedFleet(fleet(3, 1), ready_timeout_seconds=5)
    simulated.set_ready()

    def list_pids(node: SimulatedNode) -> set[int]:
        return {each.pid for each in node.snapshot(time.time()).processes}

    with serve_fleet(simulated) as targets:
        for node, target in zip(simulated.nodes, targets, strict=True):
            before = list_pids(node)
            assert ps.run(["--agent", target.removesuffix("/metrics"), "--output", "json"]) == 0
            listed = {row["pid"] for row in json.loads(capsys.readouterr().out)}
            after = list_pids(node)
            assert listed
            assert before & after <= listed <= before | after


def test_the_pair_of_the_demo_is_on_the_page_of_its_node_and_in_ps(capsys: pytest.CaptureFixture[str]):
    nodes = fleet(20, 1, demo_at=time.time())
    [(node, held)] = [(each, one) for each in nodes for one in each.snapshot(time.time()).allocations if one.used_by]
    simulated = SimulatedFleet([node], ready_timeout_seconds=5)
    simulated.set_ready()
    with serve_fleet(simulated) as (target,):
        families = {family.name: family.samples for family in parse(fetch(target))}
        assert ps.run(["--agent", target.removesuffix("/metrics"), "--output", "json"]) == 0
    rows = [row for row in json.loads(capsys.readouterr().out) if row["works_for"]]
    assert {(row["pod"], row["works_for"]) for row in rows} == {(held.used_by, held.container.pod)}
    [info] = [each for each in families["gpusteward_allocation_info"] if "used_by" in each.labels]
    assert (info.labels["pod"], info.labels["used_by"]) == (held.container.pod, held.used_by)
    pods = {each.labels["pod"] for each in families["gpusteward_use_memory_bytes"] if each.labels["by"] == "container"}
    assert held.container.pod in pods
    assert held.used_by not in pods, "what the server uses is use of the holder"


def test_a_snapshot_changes_no_counter():
    read, unread = (SimulatedFleet(fleet(1, 1), ready_timeout_seconds=5) for _ in range(2))
    name, now = read.nodes[0].name, 1_790_000_000.0
    read.set_ready()
    first = [each.render_metrics(name, now) for each in (read, unread)]
    assert read.render(f"/{name}/snapshot")
    second = [each.render_metrics(name, now + 30) for each in (read, unread)]
    assert first[0] == first[1] != second[0] == second[1]


@pytest.mark.parametrize("page", ["", "/healthz", "/snapshot/x"])
def test_other_pages_are_not_found(page: str):
    simulated = SimulatedFleet(fleet(1, 1), ready_timeout_seconds=5)
    simulated.set_ready()
    with serve_fleet(simulated) as (target,), pytest.raises(urllib.error.HTTPError, match="404") as refused:
        fetch(target.removesuffix("/metrics") + page)
    refused.value.close()


def test_a_request_before_the_fleet_is_ready_waits_and_gets_404():
    simulated = SimulatedFleet(fleet(1, 1), ready_timeout_seconds=0.2)
    with serve_fleet(simulated) as (target,):
        began = time.monotonic()
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            fetch(target)
        refused.value.close()
        assert time.monotonic() - began >= 0.2


def test_a_node_that_does_not_exist_is_not_found():
    simulated = SimulatedFleet(fleet(1, 1), ready_timeout_seconds=5)
    simulated.set_ready()
    with serve_fleet(simulated) as (target,), pytest.raises(urllib.error.HTTPError, match="404") as refused:
        fetch(target.replace(simulated.nodes[0].name, "missing"))
    refused.value.close()


def test_counters_grow_from_page_to_page():
    simulated = SimulatedFleet(fleet(1, 1), ready_timeout_seconds=5)
    name, now = simulated.nodes[0].name, 1_790_000_000.0

    def energy(at: float) -> float:
        families = parse(simulated.render_metrics(name, at).decode())
        return sum(s.value for f in families if f.name == "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" for s in f.samples)

    assert 0 < energy(now) < energy(now + 30)
