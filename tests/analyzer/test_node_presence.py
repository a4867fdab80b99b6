"""Nodes that offer GPUs and do not report are named; so are GPUs that are missing among others of their node."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from gpusteward.analyzer.gpu_presence import REMEMBERED_SECONDS, STARTING_SECONDS, GpuPresence, NodePresence
from gpusteward.analyzer.ledger.last_gpus import ClusterNode, NodeGpus, read_node_gpus
from gpusteward.analyzer.ledger_access import LedgerAccess
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.analyzer.sources.offered_gpus import (
    KEPT_SECONDS,
    LIST_LIMIT_SECONDS,
    LIST_SECONDS,
    PAGE_SIZE,
    OfferedGpus,
    OfferedNode,
    count_gpus,
)
from gpusteward.analyzer.tables import NodeModel, UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.messages.unknown_reasons import NO_CURRENT_SAMPLE
from tests.analyzer.ledger.cycles import RESTING, START, cycles, hour, open_ledger, record_all, sqlite_url
from tests.analyzer.test_gpu_presence import list_of, serving
from tests.analyzer.usage_tables import AT, allocation, resting, table_of

WINDOW, CYCLE = 600.0, 300.0


def offer(name: str, gpus: int = 8, *, addresses: Sequence[str] = (), ready: float | None = AT - 86_400) -> OfferedNode:
    return OfferedNode(name, frozenset({name, *addresses}), gpus, AT - 86_400, ready)


@dataclass
class Offered:
    """The nodes of the API server, or an error."""

    nodes: Sequence[OfferedNode] | SourceError
    lists: int = 0

    def list_nodes(self) -> Sequence[OfferedNode]:
        self.lists += 1
        if isinstance(self.nodes, SourceError):
            raise self.nodes
        return self.nodes


FOUR = [offer(f"gpu-{number}") for number in range(4)]


def report(*nodes: str | tuple[str, str], at: float = AT, gpus: int = 8) -> UsageTable:
    """Nodes that report, each with its cluster."""
    named = [(node, "") if isinstance(node, str) else node for node in nodes]
    return UsageTable(at, WINDOW, fleet={NodeModel(node, "H100", cluster): gpus for node, cluster in named})


@dataclass
class Site:
    """Cycles of one site; returns the findings as level, code and text."""

    nodes: Sequence[OfferedNode] | SourceError
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.offered = Offered(self.nodes)
        self.presence = NodePresence(offered=self.offered, **self.options)  # type: ignore[arg-type]

    def look(self, table: UsageTable) -> list[tuple[str, str, str]]:
        return [(one.level, one.code, one.message.en) for one in self.presence.find_missing(table)]


def test_a_node_that_offers_gpus_and_does_not_report_is_a_warning_with_its_name():
    ((level, code, text),) = Site(FOUR).look(report("gpu-0", "gpu-1", "gpu-3"))
    assert (level, code) == ("warning", "nodes-missing")
    assert "1 of 4 nodes with GPUs in the cluster does not report (gpu-2): 8 of 32 GPUs are not measured." in text
    assert Site(FOUR).look(report("gpu-0", "gpu-1", "gpu-2", "gpu-3")) == []


def test_half_of_the_offered_gpus_is_degraded_and_a_few_nodes_are_named():
    assert Site(FOUR).look(report("gpu-0", "gpu-1"))[0][0] == "degraded"
    many = [offer(f"n{number:02}") for number in range(20)]
    ((level, _, text),) = Site(many).look(report(*(one.name for one in many[9:])))
    assert level == "warning"
    assert "9 of 20 nodes" in text
    assert "(n00, n01, n02, …)" in text
    big = [offer("big", 16), offer("small", 1)]
    assert Site(big).look(report("small"))[0][0] == "degraded", "GPUs count, not nodes"


def test_a_node_that_reported_within_the_window_is_not_missing():
    """An exporter that is restarted, or a scrape that failed."""
    site = Site(FOUR)
    assert site.look(report(*(one.name for one in FOUR))) == []
    assert site.look(report("gpu-0", at=AT + CYCLE)) == []
    assert [code for _, code, _ in site.look(report("gpu-0", at=AT + WINDOW))] == ["nodes-missing"]
    assert site.look(report(*(one.name for one in FOUR), at=AT + WINDOW + CYCLE)) == []


@pytest.mark.parametrize(
    ("ready", "codes"),
    [
        (AT - WINDOW - STARTING_SECONDS + 1, []),
        (AT - WINDOW - STARTING_SECONDS, ["nodes-missing"]),
        (None, []),
    ],
    ids=["became ready a moment ago", "ready long enough", "not ready, or being deleted"],
)
def test_never_is_a_node_missing_that_is_not_ready_or_has_just_become_so(ready: float | None, codes: list[str]):
    site = Site([*FOUR, offer("new", ready=ready)])
    assert [code for _, code, _ in site.look(report(*(one.name for one in FOUR)))] == codes


@pytest.mark.parametrize(
    ("own", "reported", "codes"),
    [
        ("", [("gpu-0", "east"), ("gpu-1", "west")], []),  # whose nodes these are is not known
        ("north", [("gpu-0", "east")], []),
        ("east", [("gpu-0", "east"), ("gpu-1", "west")], ["nodes-missing"]),
        ("east", [(one.name, "east") for one in FOUR], []),
        ("", [("gpu-0", "east")], ["nodes-missing"]),  # the only cluster there is
        ("east", ["gpu-0"], ["nodes-missing"]),  # metrics without a cluster
    ],
)
def test_never_is_a_node_of_another_cluster_compared(own: str, reported: list[Any], codes: list[str]):
    site = Site(FOUR, {"own_cluster": own})
    assert [code for _, code, _ in site.look(report(*reported))] == codes


def test_never_is_a_cluster_compared_that_is_left_of_two_without_a_name_of_its_own():
    site = Site(FOUR)
    site.look(report(("gpu-0", "east"), ("gpu-1", "west")))
    assert site.look(report(("gpu-0", "east"), at=AT + 10 * WINDOW)) == []
    later = AT + REMEMBERED_SECONDS + WINDOW
    assert [code for _, code, _ in site.look(report(("gpu-0", "east"), at=later))] == ["nodes-missing"]


def test_all_nodes_of_the_own_cluster_are_missing_while_another_one_reports():
    site = Site(FOUR, {"own_cluster": "east"})
    other = [("w", "west")]
    assert site.look(report(*other, *((one.name, "east") for one in FOUR))) == []
    ((level, _, text),) = site.look(report(*other, at=AT + WINDOW))
    assert level == "degraded"
    assert "4 of 4 nodes" in text


@pytest.mark.parametrize(
    "names",
    [
        ["10.0.0.1:9400", "10.0.0.2:9400"],
        ["10.0.0.1", "10.0.0.2"],
        ["A.example.com", "b.example.com:9400"],
        ["a", "b"],
    ],
)
def test_a_node_is_found_by_its_address_and_with_or_without_its_domain(names: list[str]):
    nodes = [offer("a.lab", addresses=["10.0.0.1", "a"]), offer("b.lab", addresses=["10.0.0.2", "b"]), offer("c.lab")]
    ((_, _, text),) = Site(nodes).look(report(*names))
    assert "1 of 3 nodes" in text
    assert "c.lab" in text


def test_nodes_of_other_names_are_compared_by_their_numbers_only():
    ((level, code, text),) = Site(FOUR).look(report("exporter-x", "exporter-y", "exporter-z"))
    assert (level, code) == ("warning", "nodes-missing")
    assert "offer 32 GPUs on 4 nodes, but only 24 GPUs on 3 nodes report" in text
    assert "in another way (exporter-x) than the API server (gpu-0)" in text
    assert Site(FOUR).look(report("exporter-x", "exporter-y"))[0][0] == "degraded"
    assert Site(FOUR).look(report("w", "x", "y", "z")) == []
    shared = [offer(one.name, 80) for one in FOUR]  # each GPU is offered ten times
    assert Site(shared).look(report("w", "x", "y", "z")) == []


def test_nothing_is_said_where_free_gpus_are_not_counted():
    holders = replace(table_of(resting(), allocations=[replace(allocation(0), node="hami-1")]), at=AT)
    assert Site(FOUR).look(holders) == []
    mixed = replace(holders, fleet={NodeModel("gpu-0", "H100"): 8})
    assert Site(FOUR).look(mixed) == [], "nodes with HAMi only"
    stale = replace(mixed, unknown={0: NO_CURRENT_SAMPLE})
    assert [code for _, code, _ in Site(FOUR).look(stale)] == ["nodes-missing"], "its node reports nothing"


def test_nothing_is_compared_where_the_settings_leave_nodes_out_or_there_is_no_api_server():
    site = Site(FOUR, {"reads_all_nodes": lambda: False})
    assert site.look(report("gpu-0")) == []
    assert site.offered.lists == 0
    assert list(NodePresence().find_missing(report("gpu-0"))) == []


def test_nodes_that_cannot_be_listed_are_said_without_a_change_of_the_status():
    ((level, code, text),) = Site(SourceError(Message("forbidden", "禁止"))).look(report("gpu-0"))
    assert (level, code) == ("info", "nodes-unreadable")
    assert "forbidden" in text


def test_the_findings_are_those_of_the_table():
    nodes = NodePresence(offered=Offered(FOUR))  # type: ignore[arg-type]
    table = GpuPresence(nodes=nodes).check(report("gpu-0", "gpu-1", "gpu-2"))
    assert [one.code for one in table.findings] == ["nodes-missing"]


# GPUs that fell off the bus


def test_gpus_that_a_node_has_and_never_reported_are_a_warning():
    """Relabeling drops series without a pod."""
    nodes = [offer(name, addresses=[f"10.0.0.{name[-1]}"])._replace(counted=8) for name in ("gpu-0", "gpu-1")]
    ((level, code, text),) = Site(nodes).look(
        UsageTable(AT, WINDOW, fleet={NodeModel("gpu-0", "H100", ""): 5, NodeModel("10.0.0.1:9400", "H100", ""): 8})
    )
    assert (level, code) == ("warning", "gpus-unreported")
    assert "3 GPUs of 1 node are not" in text
    assert "gpu-0 (5/8)" in text


@pytest.mark.parametrize(
    ("one", "gpus"),
    [
        (offer("gpu-0"), 5),
        (offer("gpu-0", ready=AT - 60)._replace(counted=8), 5),
        (offer("gpu-0", ready=None)._replace(counted=8), 5),
        (offer("gpu-0")._replace(counted=8), 9),
    ],
    ids=["not counted", "just ready", "not ready", "more than counted"],
)
def test_never_is_a_gpu_unreported_that_is_not_known_to_be_there(one: OfferedNode, gpus: int):
    assert Site([one]).look(report("gpu-0", gpus=gpus)) == []


def test_a_gpu_that_was_lost_is_not_said_twice():
    site = Site([offer("gpu-0")._replace(counted=8)])
    assert site.look(report("gpu-0", at=AT - 2 * WINDOW)) == []
    assert [code for _, code, _ in site.look(report("gpu-0", gpus=7))] == ["gpus-lost"]


def test_a_gpu_that_is_missing_on_a_node_that_reports_others_is_a_warning_for_a_day():
    site = Site([])
    assert site.look(report("a", "b")) == []

    def later(seconds: float, gpus: int) -> list[tuple[str, str, str]]:
        table = report("b", at=AT + seconds)
        return site.look(replace(table, fleet={**table.fleet, NodeModel("a", "H100"): gpus}))

    assert later(CYCLE, 7) == [], "within the window: a sample may be missing"
    ((level, code, text),) = later(WINDOW, 7)
    assert (level, code) == ("warning", "gpus-lost")
    assert "1 GPU that 1 node had within the last day does not report any more" in text
    assert "a (7/8)" in text
    assert later(WINDOW + CYCLE, 8) == [], "it is back"
    assert "a (6/8)" in later(2 * WINDOW + CYCLE, 6)[0][2]
    assert later(WINDOW + CYCLE + REMEMBERED_SECONDS, 6), "for a day"
    assert later(WINDOW + CYCLE + REMEMBERED_SECONDS + 1, 6) == [], "then it is no longer expected"
    assert later(WINDOW + 2 * REMEMBERED_SECONDS, 6) == []


def test_a_node_that_was_created_again_under_its_name_may_have_fewer_gpus():
    site = Site([offer("a")])
    site.look(report("a"))
    smaller = report("a", at=AT + WINDOW, gpus=4)
    assert [code for _, code, _ in site.look(smaller)] == ["gpus-lost"]
    site.offered.nodes = [offer("a", 4)._replace(created_at=AT + 60)]
    assert site.look(smaller) == []


def test_after_a_restart_the_ledger_knows_what_nodes_had(tmp_path: Path):
    settings = LedgerSettings(url=sqlite_url(tmp_path))
    access = LedgerAccess(settings, PriceSettings)
    assert access.read_node_gpus() == {}, "a new file"
    access.close()
    rows = [(allocation(), RESTING)]
    first = cycles(rows, range(0, 60, 5), fleet={("a", "H100"): 4, ("a", "A100"): 4, ("b", "H100", "east"): 2})
    record_all(settings.url, [*first, *cycles(rows, range(60, 130, 5), fleet={("a", "H100"): 7})])
    ledger, at = open_ledger(settings.url), START + 130 * 60
    with ledger.engine.connect() as connection:
        found = read_node_gpus(connection, hour(), int(at * 1000))
        later = read_node_gpus(connection, hour(2), int(at * 1000))
    ledger.close()
    assert found == {
        ClusterNode("", "a"): NodeGpus(8, START + 3600),
        ClusterNode("east", "b"): NodeGpus(2, START + 3600),
    }
    assert later == {ClusterNode("", "a"): NodeGpus(7, at)}
    (lost,) = NodePresence(lambda: found).find_missing(report("a", at=at, gpus=7))
    assert lost.code == "gpus-lost"


def test_a_node_that_the_ledger_had_a_moment_ago_is_not_missing_yet():
    known = {ClusterNode("", "gpu-3"): NodeGpus(8, AT - 60)}
    site = Site(FOUR, {"read_known": lambda: known})
    assert site.look(report("gpu-0", "gpu-1", "gpu-2")) == []
    later = report("gpu-0", "gpu-1", "gpu-2", at=AT + WINDOW)
    assert [code for _, code, _ in site.look(later)] == ["nodes-missing"]


def test_a_ledger_that_cannot_be_read_is_asked_again():
    answers: list[Any] = [SourceError(Message("hung", "无响应")), {ClusterNode("", "a"): NodeGpus(8, AT - 3600)}]

    def read() -> Mapping[ClusterNode, NodeGpus]:
        answer = answers.pop(0)
        if isinstance(answer, SourceError):
            raise answer
        return dict(answer)

    presence = NodePresence(read)
    assert list(presence.find_missing(report("b"))) == []
    assert list(presence.find_missing(report("b", at=AT + CYCLE))) == []
    assert answers == []


# The API server


@pytest.mark.parametrize(
    ("resources", "labels", "gpus"),
    [
        ({"cpu": "64", "nvidia.com/gpu": "8"}, {}, 8),
        ({"nvidia.com/gpu": "32"}, {"nvidia.com/gpu.count": "8"}, 8),
        ({"nvidia.com/gpu.shared": "32"}, {"nvidia.com/gpu.replicas": "4"}, 8),
        ({"nvidia.com/mig-1g.10gb": "14"}, {"nvidia.com/gpu.count": "2"}, 2),
        ({"nvidia.com/mig-1g.10gb": "14"}, {}, 1),
        ({"volcano.sh/vgpu-number": "80"}, {}, 1),
        ({"aliyun.com/gpu-mem": "80"}, {"nvidia.com/gpu.count": "2"}, 2),
        ({"cpu": "64"}, {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.count": "4"}, 4),  # dynamic allocation
        ({"nvidia.com/gpu": "0", "cpu": "8"}, {}, 0),
        ({"amd.com/gpu": "8"}, {}, 0),
        ({"nvidia.com/hostdev": "4"}, {}, 0),
        ({"cpu": "8"}, {"cloud.google.com/gke-accelerator": "nvidia-l4"}, 0),
    ],
)
def test_gpus_of_a_node_are_counted_by_labels_and_resources(
    resources: dict[str, str], labels: dict[str, str], gpus: int
):
    assert count_gpus([resources], labels) == gpus


READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-09-20T10:00:00Z"}


def node(name: str, *, labels: Mapping[str, str] | None = None, status: Any = (), **metadata: Any) -> Mapping[str, Any]:
    own = {"name": name, "labels": labels or {}, "creationTimestamp": "2026-09-20T09:00:00Z", **metadata}
    known = {"capacity": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "DiskPressure", "status": "False"}, READY]}
    return {"metadata": own, "status": known | dict(status), "spec": {"unschedulable": True}}


NODES = [
    node("plain", status={"addresses": [{"type": "InternalIP", "address": "10.0.0.7"}]}),
    node("not-ready", status={"conditions": [READY | {"status": "Unknown"}]}),
    node("deleted", deletionTimestamp="2026-09-20T11:00:00Z"),
    node("unhealthy", status={"allocatable": {"nvidia.com/gpu": "7"}}),
    node("cpu", status={"capacity": {"cpu": "8"}}),
    node("virtual", labels={"type": "virtual-kubelet"}),
    node("passthrough", labels={"nvidia.com/gpu.workload.config": "vm-passthrough"}),
    node("unmonitored", labels={"nvidia.com/gpu.deploy.dcgm-exporter": "false"}),
]


@pytest.mark.parametrize(
    ("labels", "status", "counted"),
    [
        ({"nvidia.com/gpu.count": "8"}, {}, 8),
        ({"nvidia.com/gpu.count": "8"}, {"capacity": {"nvidia.com/gpu": "32"}}, 8),
        ({}, {}, 0),
        ({"nvidia.com/gpu.count": "8"}, {"capacity": {"nvidia.com/mig-1g.5gb": "7"}}, 0),
        ({"nvidia.com/gpu.count": "56", "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"}, {}, 0),
    ],
    ids=["label", "shared", "no label", "MIG, mixed", "MIG, single"],
)
def test_gpu_discovery_counts_boards_only_without_mig(labels: dict[str, str], status: dict[str, Any], counted: int):
    with serving(lambda _: list_of([node("n", labels=labels, status=status)])) as (api, _):
        assert [one.counted for one in OfferedGpus(api).list_nodes()] == [counted]


def test_nodes_are_listed_page_by_page_and_at_most_every_five_minutes():
    now = [1000.0]
    with serving(lambda path: list_of(NODES[4:]) if "continue" in path else list_of(NODES[:4], "next")) as (api, paths):
        offered = OfferedGpus(api, clock=lambda: now[0])
        found = {one.name: one for one in offered.list_nodes()}
        offered.list_nodes()
        now[0] += LIST_SECONDS - 1
        offered.list_nodes()
        assert paths == [f"/api/v1/nodes?limit={PAGE_SIZE}", f"/api/v1/nodes?limit={PAGE_SIZE}&continue=next"]
        now[0] += 1
        offered.list_nodes()
        assert len(paths) == 4
    assert found.keys() == {"plain", "not-ready", "deleted", "unhealthy"}
    ready = {name for name, one in found.items() if one.ready_at is not None}
    assert ready == {"plain", "unhealthy"}
    plain = found["plain"]
    assert (plain.gpus, plain.names, plain.ready_at) == (8, {"plain", "10.0.0.7"}, 1789898400.0)
    assert plain.created_at == 1789894800.0
    assert found["unhealthy"].gpus == 8


def test_a_list_that_fails_is_replaced_by_the_last_one_for_a_while():
    now, fails = [1000.0], [False]
    with serving(lambda _: (403, {"message": "no"}) if fails[0] else list_of(NODES)) as (api, _):
        offered = OfferedGpus(api, clock=lambda: now[0])
        assert len(offered.list_nodes()) == 4
        fails[0] = True
        now[0] += KEPT_SECONDS - 1
        assert len(offered.list_nodes()) == 4
        now[0] += 1
        with pytest.raises(SourceError):
            offered.list_nodes()


def test_a_slow_api_server_does_not_delay_a_cycle_for_long():
    now = [1000.0]

    def answer(_: str) -> tuple[int, Mapping[str, Any]]:
        now[0] += LIST_LIMIT_SECONDS / 2 + 1
        return list_of(NODES, "more")

    with serving(answer) as (api, paths), pytest.raises(SourceError, match="within 20 s"):
        OfferedGpus(api, clock=lambda: now[0]).list_nodes()
    assert len(paths) == 2
