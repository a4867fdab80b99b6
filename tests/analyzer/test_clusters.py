"""The cluster is part of every identity: ledger, reports, API, /metrics, notices, alerts, webhook, owners."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpusteward.analyzer.app import Analyzer
from gpusteward.analyzer.ledger.identities import make_allocation_id
from gpusteward.analyzer.ledger.spells.restore_state import read_clusters, restore_history
from gpusteward.analyzer.metrics.page import render_result
from gpusteward.analyzer.notify.alertmanager import ActiveAlerts
from gpusteward.analyzer.notify.control_webhook import control_events
from gpusteward.analyzer.notify.notices.messages import MessageOptions
from gpusteward.analyzer.notify.notices.planner import NoticePlanner
from gpusteward.analyzer.notify.notices.routing import NoticeHistory
from gpusteward.analyzer.reports.make_report import make_report
from gpusteward.analyzer.reports.report_query import ReportQuery
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.file import SettingsFile
from gpusteward.analyzer.settings.flags import Flags
from gpusteward.analyzer.sources.owners.cluster_owners import ClusterOwners
from gpusteward.analyzer.tables import NodeModel
from gpusteward.core.exposition import TEXT_TYPE
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.core.usages import AllocationKey
from gpusteward.kubernetes.api import ApiServer
from tests.analyzer.api.server import Api, running_api
from tests.analyzer.ledger.cycles import RESTING, START, WORKING, cycle, hour, open_ledger, read_table
from tests.analyzer.notify.notifier_setup import AT, BUSY, IDLE, gpu_of, result_of, settings_of
from tests.analyzer.usage_tables import allocation

SETTINGS = settings_of(
    notify={"channels": {"ops": "https://open.feishu.cn/open-apis/bot/v2/hook/ops"}, "language": "en"},
    control={"enabled": True, "api_url": "http://127.0.0.1:9/hook"},
)
OPTIONS = MessageOptions("en", "UTC", "USD", 24, 600)
WEB = "/api/v1/workloads/Deployment/ml/web"


def in_cluster(one: AllocationKey, cluster: str) -> AllocationKey:
    owner = one.container.workload
    named = replace(owner, cluster=cluster) if owner else None
    return replace(one, container=replace(one.container, workload=named, cluster=cluster))


def make_clusters(*names: str) -> list[AllocationKey]:
    """The same workload, pod, node and GPU in each."""
    return [in_cluster(gpu_of("ml", "web"), name) for name in names]


def result_in(*names: str, rows: Sequence[object] | None = None) -> Result:
    return result_of(make_clusters(*names), rows, settings=SETTINGS)  # type: ignore[arg-type]


def page_of(result: Result) -> list[str]:
    return b"".join(render_result(result, TEXT_TYPE).pieces()).decode().splitlines()


def test_the_id_of_an_allocation_without_a_cluster_is_as_before_and_each_cluster_has_its_own():
    ids = [make_allocation_id(one) for one in [allocation(0), *make_clusters("", "east", "west")]]
    assert ids[0] == 8142056287148621206, "as in the ledgers of earlier versions"
    assert len(set(ids)) == 4


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with running_api(result_in("east", "west", rows=[IDLE, BUSY])) as api:
        yield api


@pytest.mark.parametrize("resource", ["workloads", "allocations", "gpus", "namespaces"])
def test_lists_have_a_row_for_each_cluster_and_filter_by_it(api: Api, resource: str):
    rows = api.get(f"/api/v1/{resource}").json["items"]
    assert sorted(row["cluster"] for row in rows) == ["east", "west"]
    assert len({row["id"] for row in rows if "id" in row}) in (0, 2)
    chosen = api.get(f"/api/v1/{resource}?cluster=west").json
    assert [row["cluster"] for row in chosen["items"]] == ["west"]
    assert chosen["total"] == 1


@pytest.mark.parametrize("path", [WEB, f"{WEB}/series", f"{WEB}/processes"])
def test_a_path_that_several_clusters_have_needs_the_cluster(api: Api, path: str):
    problem = api.get(path)
    assert problem.status == 409
    assert problem.json["type"] == "urn:gpusteward:problem:ambiguous"
    assert "cluster=NAME, one of east, west" in problem.json["detail"]
    assert api.get(f"{path}?cluster=west").status == 200
    assert api.get(f"{path}?cluster=north").status == 404


def test_a_workload_is_shown_with_the_verdict_of_its_cluster(api: Api):
    shown = {name: api.get(f"{WEB}?cluster={name}").json["workload"] for name in ("east", "west")}
    assert {name: each["activity"] for name, each in shown.items()} == {"east": "idle", "west": "active"}


def test_a_path_that_one_cluster_has_needs_no_cluster():
    with running_api(result_in("east")) as api:
        assert api.get(WEB).json["workload"]["cluster"] == "east"


def test_rows_of_gpu_oour_have_a_cluster_where_it_is_known(api: Api):
    assert sorted(row["cluster"] for row in api.get("/results").json) == ["east", "west"]
    with running_api(result_in("")) as unnamed:
        assert "cluster" not in unnamed.get("/results").json[0]


def test_the_metrics_of_each_cluster_have_its_label():
    page = page_of(result_in("east", "west", rows=[IDLE, BUSY]))
    assert [line for line in page if line.startswith("gpu_idle_count")] == [
        'gpu_idle_count{cluster="east"} 1',
        'gpu_idle_count{cluster="west"} 0',
    ]
    scores = [line for line in page if line.startswith("gpu_utilization_score{")]
    assert len(scores) == 2
    assert not any("container=" in line for line in scores), "they are not duplicates"
    assert 'gpusteward_analyzer_workloads{activity="idle",cluster="east"} 1' in page
    assert len({line.rsplit(" ", 1)[0] for line in page}) == len(page), "every series once"


def test_without_a_cluster_the_metrics_are_as_before():
    assert not any("cluster=" in line for line in page_of(result_in("")))


def test_control_calls_name_the_cluster_and_are_separate_streams():
    events = list(control_events(result_in("east", "west")))
    assert [json.loads(event.body)["cluster"] for event in events] == ["east", "west"]
    assert len({event.stream for event in events}) == len({event.key for event in events}) == 2
    (unnamed,) = control_events(result_in(""))
    assert "cluster" not in json.loads(unnamed.body)
    assert unnamed.stream == "control/Deployment/ml/web"


def test_alerts_have_the_cluster_as_a_label():
    alerts = list(ActiveAlerts().update(result_in("east", "west"), SETTINGS.alertmanager, OPTIONS))
    assert [alert["labels"]["cluster"] for alert in alerts] == ["east", "west"]
    (unnamed,) = ActiveAlerts().update(result_in(""), SETTINGS.alertmanager, OPTIONS)
    assert "cluster" not in unnamed["labels"]


def plan(history: NoticeHistory, *clusters: str, after: float = 0.0) -> list[str]:
    planner = NoticePlanner(SETTINGS, history, engine=None, read_notify_annotation=lambda *_: "")
    result = result_of(make_clusters(*clusters), settings=SETTINGS, at=AT + after)
    return [event.body for event in planner.plan_idle(result, now=AT + after).events]


def test_notices_name_the_cluster_where_there_are_several_and_each_has_its_own_history():
    history = NoticeHistory()
    (first,) = plan(history, "east")
    title, _, named, *_ = first.splitlines()
    assert (title, named.split()[0]) == ("Idle GPUs: ml", "ml/Deployment/web"), "one cluster: as before"
    (second,) = plan(history, "east", "west", after=60)
    title, _, named, *_ = second.splitlines()
    assert (title, named.split()[0]) == ("Idle GPUs: west/ml", "west/ml/Deployment/web"), (
        "not limited by the rate of east"
    )
    assert plan(history, "east", "west", after=120) == []


@pytest.fixture
def ledger_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ledger.db'}"


def test_the_ledger_keeps_clusters_apart_and_reports_group_by_them(ledger_url: str):
    ledger = open_ledger(ledger_url)
    both = [in_cluster(allocation(0), name) for name in ("east", "west")]
    fleet = {NodeModel("node-0", "H100", name): 8 for name in ("east", "west")}
    for minute in (0, 10, 20):
        ledger.record(cycle(list(zip(both, (RESTING, WORKING), strict=True)), START + 60 * minute, fleet=fleet))
    changes = {(row["cluster"], row["activity"]) for row in read_table(ledger.engine, "verdict_changes")}
    assert changes == {("east", "idle"), ("west", "active")}
    reports = {
        by: make_report(ledger.engine, ReportQuery(hour(), hour(1), by=by), now_ms=hour(1))
        for by in ("cluster", "namespace", "workload", "node")
    }
    ledger.close()
    for by, report in reports.items():
        rows = {(row.cluster, row.amounts.idle_gpu_ms // 60_000) for row in report.groups}
        assert rows == {("east", 20), ("west", 0)}, by
    assert [row.name for row in reports["cluster"].groups] == ["east", "west"]
    assert {row.amounts.unallocated_gpu_ms for row in reports["cluster"].groups} == {7 * 20 * 60_000}
    assert [(row.cluster, row.name) for row in reports["cluster"].wasters] == [("east", "server")]


def test_time_is_not_counted_twice_when_a_site_begins_to_name_its_cluster(ledger_url: str):
    ledger = open_ledger(ledger_url)
    for minute in (0, 10, 20, 30):
        named = in_cluster(allocation(0), "east" if minute >= 20 else "")
        ledger.record(cycle([(named, WORKING)], START + 60 * minute))
    rows = read_table(ledger.engine, "usage_hourly")
    assert sum(row["allocated_ms"] for row in rows) == 30 * 60_000
    held = {row["cluster"]: row["ended_ms"] is None for row in read_table(ledger.engine, "allocations")}
    assert held == {"": False, "east": True}
    ledger.close()


def test_a_workload_key_is_written_without_its_cluster():
    assert WorkloadKey("Job", "ml", "train", "east").path == "Job/ml/train"


def test_idle_time_recorded_before_the_only_cluster_was_named_is_kept(ledger_url: str):
    ledger = open_ledger(ledger_url)
    for minute in (0, 10):
        ledger.record(cycle([(allocation(0), RESTING)], START + 60 * minute))
    for names, is_known in ((["east"], True), (["east", "west"], False)):
        table = cycle([(in_cluster(allocation(0), name), RESTING) for name in names], START + 1200).verdicts.usage
        history = restore_history(ledger.engine, table)
        assert bool((~np.isnan(history.past.idle_since)).any()) is is_known, names
    ledger.close()


def test_the_ledger_remembers_every_cluster_and_its_gpus(ledger_url: str):
    """Also those that do not report any more."""
    ledger = open_ledger(ledger_url)
    with ledger.engine.connect() as connection:
        assert read_clusters(connection, ["east"]) == [], "a new file"
    for minute, names in enumerate([("east",), ("east",), ("east", "west"), ("west",)]):
        rows = [(in_cluster(allocation(len(name)), name), RESTING) for name in names]
        ledger.record(cycle(rows, START + 600 * minute))
        with ledger.engine.connect() as connection:
            found = read_clusters(connection, names)
        assert dict.fromkeys(name for name, _ in found) == dict.fromkeys(["east", "west"] if minute > 1 else ["east"])
        gpus = {(name, uuid) for name, uuid in found if uuid}
        assert gpus == ({("east", "GPU-4"), ("west", "GPU-4")} if minute > 1 else set())
    with ledger.engine.connect() as connection:
        assert ("west", "GPU-4") in read_clusters(connection, ["north"])
    ledger.close()


def test_the_owners_of_an_analyzer_know_the_clusters_of_its_ledger(ledger_url: str, tmp_path: Path):
    ledger = open_ledger(ledger_url)
    both = [in_cluster(allocation(number), name) for number, name in enumerate(["east", "west"])]
    ledger.record(cycle([(one, RESTING) for one in both], START))
    ledger.close()
    (tmp_path / "config.yaml").write_text(f"ledger: {{url: '{ledger_url}'}}")
    owners = ClusterOwners(ApiServer("http://127.0.0.1:9"))
    analyzer = Analyzer(SettingsFile(Flags(), {}, directory=tmp_path), owners=owners)
    try:
        table = cycle([(both[1], RESTING)], START + 600).verdicts.usage
        [finding] = owners.resolve_owners(table).findings
        assert "(east, west)" in finding.message.en
    finally:
        analyzer.ledger.close()


def is_restored(url: str, one: AllocationKey) -> bool:
    """Whether the first cycle after a restart knows since when it is idle."""
    ledger = open_ledger(url)
    history = restore_history(ledger.engine, cycle([(one, RESTING)], START + 1200).verdicts.usage)
    ledger.close()
    return bool((~np.isnan(history.past.idle_since)).any())


@pytest.mark.parametrize(("before", "after"), [("", ""), ("", "east"), ("west", "east"), ("east", "east")])
@pytest.mark.parametrize("has_uids", [True, False])
def test_never_the_idle_time_of_a_twin_in_another_cluster_on_the_same_ledger(
    ledger_url: str, before: str, after: str, *, has_uids: bool
):
    """A pod of the same name and owner, on another GPU; with dcgm-exporter without a uid."""
    one, twin = allocation(0), replace(allocation(0), gpu_uuid="GPU-twin")
    twin = replace(twin, container=replace(twin.container, pod_uid="uid-twin"))
    if not has_uids:
        one, twin = (replace(each, container=replace(each.container, pod_uid="")) for each in (one, twin))
    ledger = open_ledger(ledger_url)
    for minute in (0, 10):
        ledger.record(cycle([(in_cluster(one, before), RESTING)], START + 60 * minute))
    ledger.close()
    assert not is_restored(ledger_url, in_cluster(twin, after))
    is_known = before == after or has_uids  # a changed name needs the same uid
    assert is_restored(ledger_url, in_cluster(one, after)) is is_known


def test_idle_time_recorded_without_a_cluster_ends_with_the_first_verdict_in_the_cluster(ledger_url: str):
    ledger = open_ledger(ledger_url)
    named = in_cluster(allocation(0), "east")
    for minute, (one, values) in enumerate([(allocation(0), RESTING), (named, WORKING)]):
        ledger.record(cycle([(one, values)], START + 600 * minute))
    history = restore_history(ledger.engine, cycle([(named, RESTING)], START + 1200).verdicts.usage)
    assert not (~np.isnan(history.past.idle_since)).any()
    ledger.close()
