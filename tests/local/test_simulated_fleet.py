"""Simulated nodes that can be scraped."""

import json
import time
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from gpusteward.cli.commands import ps
from gpusteward.local.simulated_fleet import Park, serve_park
from gpusteward.simulate.fleets import fleet
from gpusteward.simulate.nodes import SimulatedNode


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def test_every_node_has_a_page_of_its_own_with_both_dialects():
    park = Park(fleet(3, 1), patience_seconds=5)
    park.open()
    with serve_park(park) as targets:
        pages = [fetch(target) for target in targets]
    for node, page in zip(park.nodes, pages, strict=True):
        names = {family.name for family in parse(page)}
        assert {"DCGM_FI_DEV_FB_USED", "gpusteward_allocation_info"} <= names
        assert f'Hostname="{node.name}"' in page


def test_ps_can_ask_a_node_as_it_asks_an_agent(capsys: pytest.CaptureFixture[str]):
    park = Park(fleet(3, 1), patience_seconds=5)
    park.open()

    def list_pids(node: SimulatedNode) -> set[int]:
        return {each.pid for each in node.snapshot(time.time()).processes}

    with serve_park(park) as targets:
        for node, target in zip(park.nodes, targets, strict=True):
            before = list_pids(node)
            assert ps.run(["--agent", target.removesuffix("/metrics"), "--output", "json"]) == 0
            told = {row["pid"] for row in json.loads(capsys.readouterr().out)}
            after = list_pids(node)
            assert told
            assert before & after <= told <= before | after


def test_a_snapshot_moves_no_counter():
    asked, unasked = Park(fleet(1, 1), patience_seconds=5), Park(fleet(1, 1), patience_seconds=5)
    name, now = asked.nodes[0].name, 1_790_000_000.0
    asked.open()
    first = [park.speak(name, now) for park in (asked, unasked)]
    assert asked.answer(f"/{name}/snapshot")
    second = [park.speak(name, now + 30) for park in (asked, unasked)]
    assert first[0] == first[1] != second[0] == second[1]


@pytest.mark.parametrize("page", ["", "/healthz", "/snapshot/x"])
def test_other_pages_are_not_found(page: str):
    park = Park(fleet(1, 1), patience_seconds=5)
    park.open()
    with serve_park(park) as (target,), pytest.raises(urllib.error.HTTPError, match="404") as refused:
        fetch(target.removesuffix("/metrics") + page)
    refused.value.close()


def test_who_asks_before_it_opens_waits_and_then_hears_that_there_is_nothing():
    park = Park(fleet(1, 1), patience_seconds=0.2)
    with serve_park(park) as (target,):
        began = time.monotonic()
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            fetch(target)
        refused.value.close()
        assert time.monotonic() - began >= 0.2


def test_a_node_that_does_not_exist_is_not_found():
    park = Park(fleet(1, 1), patience_seconds=5)
    park.open()
    with serve_park(park) as (target,), pytest.raises(urllib.error.HTTPError, match="404") as refused:
        fetch(target.replace(park.nodes[0].name, "nobody"))
    refused.value.close()


def test_counters_grow_from_page_to_page():
    park = Park(fleet(1, 1), patience_seconds=5)
    name, now = park.nodes[0].name, 1_790_000_000.0

    def energy(at: float) -> float:
        families = parse(park.speak(name, at).decode())
        return sum(s.value for f in families if f.name == "gpusteward_gpu_energy_joules" for s in f.samples)

    assert 0 < energy(now) < energy(now + 30)
