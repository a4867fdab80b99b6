"""`gpusteward explain` against a real analyzer."""

import csv
import io
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gpusteward.analyzer.reclaim.plan import Answer, OtherPod, Outcome, Plan
from gpusteward.analyzer.reports.report import EndedWorkload
from gpusteward.analyzer.reports.report_query import EndedQuery
from gpusteward.analyzer.results import Result
from gpusteward.cli.main import main
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.core.namespaces import VisibleNamespaces
from gpusteward.core.node.containers import Container, Workload
from gpusteward.core.usages import AllocationKey, Measure, Stat
from tests.analyzer.api.fake_reclaim import FakeReclaim, decide
from tests.analyzer.api.sample_results import hold, small_result, suspicious_result
from tests.analyzer.api.server import Api, FakeLedger, FakeSource, make_result, running_api
from tests.analyzer.reports.example_reports import make_amounts
from tests.analyzer.usage_tables import AT, DAY, GIB, resting, signal, table_of, working
from tests.cli.golden_files import assert_golden


@pytest.mark.parametrize(
    ("workload", "language", "golden"),
    [
        ("vision/trainer", "en", "explain.trainer.en.txt"),
        ("chat/server", "zh", "explain.server.zh.txt"),
        ("vision/unread", "en", "explain.unread.en.txt"),
    ],
)
def test_the_text_matches_the_golden_file(
    workload: str, language: str, golden: str, analyzer: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", workload, "--server", analyzer.url, "--language", language]) == 0
    assert_golden(golden, capsys.readouterr().out)


@pytest.mark.parametrize(
    "words",
    [
        ["trainer"],
        ["vision/trainer"],
        ["Job/trainer"],
        ["-n", "vision", "job/trainer"],
        ["trainer", "--namespace", "vision"],
        ["vision/Job/trainer"],
        ["vision/jobs/trainer"],
        ["Job/vision/trainer"],
        ["job/vision/trainer"],
        ["trainer-0"],
        ["vision/trainer-0"],
        ["pod/trainer-0"],
        ["vision/pod/trainer-0"],
        ["vision/trainer-0/main"],
    ],
)
def test_a_workload_is_found_by_every_order_of_its_name_and_by_its_pods(
    words: list[str], analyzer: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *words, "--server", analyzer.url]) == 0
    assert capsys.readouterr().out.startswith("vision/Job/trainer\n")


def test_kinds_have_the_short_names_of_kubectl(analyzer: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "chat/deploy/server", "--server", analyzer.url]) == 0
    assert capsys.readouterr().out.startswith("chat/Deployment/server\n")


@pytest.mark.parametrize(
    ("name", "near"),
    [("chat/servr", "'chat/server'"), ("trianer", "'trainer'"), ("vision/Job/trainr", "'vision/Job/trainer'")],
)
def test_an_unknown_name_is_reported_with_the_nearest_one(
    name: str, near: str, analyzer: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", name, "--server", analyzer.url]) == 1
    printed = capsys.readouterr().err
    assert printed == f"gpusteward: no workload {name!r} holds or held a GPU; did you mean {near}?\n"


@pytest.mark.parametrize(
    "words",
    [["Deployment/vision/trainer"], ["-n", "chat", "trainer"], ["chat/Job/trainer"], ["east/vision/Job/trainr"]],
)
def test_another_kind_or_namespace_is_another_workload(
    words: list[str], analyzer: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *words, "--server", analyzer.url]) == 1
    assert "holds or held a GPU" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a/b/c/d/e", "/", ""])
def test_an_invalid_name_is_a_usage_error(name: str, analyzer: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", name, "--server", analyzer.url]) == 2
    assert "write NAMESPACE/NAME or NAMESPACE/KIND/NAME" in capsys.readouterr().err


HOUR_MS = 3_600_000
SPENT = make_amounts(
    allocations=2,
    active=2,
    idle=8,
    active_cost_micros=5_000_000,
    effective_cost_micros=5_000_000,
    idle_cost_micros=20_000_000,
)
ENDED = EndedWorkload(
    "Job",
    "vision",
    "trainer-old",
    int(AT - 7200) * 1000,
    int(AT - 3600) * 1000,
    2,
    ("lee",),
    ("NVIDIA A10",),
    ("n1",),
    "USD",
    SPENT,
)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_an_ended_workload_is_answered_from_the_ledger(language: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Although the name of another workload is near."""
    with running_api(small_result(), ledger=FakeLedger(ended=[ENDED])) as api:
        assert main(["explain", "vision/trainer-old", "--server", api.url, "--language", language]) == 0
    printed = re.sub(r"\d+d( \d+h)?(?= ago| 前)", "1d 2h", capsys.readouterr().out)
    assert_golden(f"explain.ended.{language}.txt", printed)


def test_an_ended_workload_in_json_is_the_row_of_the_api(capsys: pytest.CaptureFixture[str]) -> None:
    with running_api(small_result(), ledger=FakeLedger(ended=[ENDED])) as api:
        assert main(["explain", "job/trainer-old", "--server", api.url, "-o", "json"]) == 0
        (row,) = api.get("/api/v1/workloads/ended?name=trainer-old").json["items"]
    printed = json.loads(capsys.readouterr().out)
    assert printed == row
    assert printed["amounts"]["idle_gpu_ms"] == 8 * HOUR_MS


def test_without_access_to_the_ledger_nothing_else_is_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    class BrokenLedger(FakeLedger):
        def describe(self) -> Mapping[str, Any]:
            return {"is_ready": False, "buffered_cycles": 0, "lost_cycles": 0, "error": "locked"}

        def read_ended_workloads(self, query: EndedQuery, **_: Any) -> Sequence[EndedWorkload]:
            raise SourceError("the ledger cannot be read: locked")

    with running_api(small_result(), ledger=BrokenLedger()) as api:
        assert main(["explain", "vision/trainer-old", "--server", api.url]) == 1
    printed = capsys.readouterr().err
    assert "whether one has ended is unknown" in printed
    assert "locked" in printed
    assert "did you mean" not in printed


def test_an_ambiguous_name_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    owners = [Workload("Job", "a", "app"), Workload("Deployment", "a", "app"), Workload("Job", "b", "app")]
    allocations = [
        hold(f"GPU-{number}", one, namespace=one.namespace, pod=f"p{number}") for number, one in enumerate(owners)
    ]
    with running_api(make_result(table_of(*[working()] * 3, allocations=allocations))) as api:
        assert main(["explain", "app", "--server", api.url]) == 2
        printed = capsys.readouterr().err
        assert main(["explain", "a/app", "--server", api.url]) == 2
        assert main(["explain", "job/a/app", "--server", api.url]) == 0
    assert "3 workloads match 'app': write one of" in printed
    assert "a/Deployment/app" in printed


def test_a_name_with_special_characters_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    owner = Workload("Job", "team", "a b?c#d%2F")
    held = [hold("GPU-a", owner, namespace="team", pod="p")]
    with running_api(make_result(table_of(resting(), allocations=held))) as api:
        assert main(["explain", "team/a b?c#d%2F", "--server", api.url]) == 0
        (title, *_) = capsys.readouterr().out.splitlines()
        assert title == "'team/Job/a b?c#d%2F'", "quoted for a shell"
        assert main(["explain", *shlex.split(title), "--server", api.url]) == 0


def test_json_is_the_response_of_the_api(analyzer: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "chat/server", "--server", analyzer.url, "-o", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == analyzer.get("/api/v1/workloads/Deployment/chat/server?language=en").json
    assert printed["allocations"][0]["opinion"]["reason"] == "显存占用但没有计算"


def test_csv_has_one_row_per_allocation(analyzer: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "trainer", "--server", analyzer.url, "-o", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["gpu"], row["activity"]) for row in rows] == [("GPU-a", "active"), ("GPU-b", "idle")]
    assert rows[0]["opinion_status"] == ""
    assert "No work: every activity signal" in rows[1]["reasons"]


@pytest.mark.parametrize(
    ("language", "verdict", "reason"),
    [
        ("en", "idle, parked; gpu-oour's score 19.7 of 100", "in its band low, because"),
        ("zh", "空闲，仅占显存；gpu-oour 评分 19.7（满分 100）", "仅看评分档位为偏低"),
    ],
)
def test_a_score_has_no_range_that_it_is_not_in(
    language: str, verdict: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Held memory gives an idle GPU a score above the range of idle."""
    owner = Workload("Deployment", "team", "app")
    held = [hold("GPU-a", owner, namespace="team", pod="p")]
    with running_api(make_result(table_of(resting(72), allocations=held))) as api:
        assert main(["explain", "app", "--server", api.url, "--language", language]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[1].split(maxsplit=1)[1] == verdict
    assert reason in printed
    assert "alone" not in printed


@pytest.mark.parametrize(
    ("language", "word", "why"),
    [
        ("en", "suspicious, keep-alive; ", "* Constant at 80.0%"),
        ("zh", "可疑，疑似占卡；", "* 利用率恒定在 80.0%"),
    ],
)
def test_a_suspicious_workload_has_one_verdict_from_the_first_line_to_the_last(
    language: str, word: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with running_api(suspicious_result()) as api:
        assert main(["explain", "trainer", "--server", api.url, "--language", language]) == 0
        lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
        assert main(["idle", "--server", api.url, "-o", "json"]) == 0
        listed = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert lines[1].split(maxsplit=1)[1].startswith(word)
    assert next(line for line in lines if line.startswith("*")).startswith(why), "the first reason says why"
    assert not any("张使用中" in line or "workload is in use" in line for line in lines)
    bands = [line for line in lines if line.startswith("*") and ("of 100" in line or "满分 100" in line)]
    assert bands, "every GPU has one"
    assert all("no verdict" in line or "不是结论" in line for line in bands), "a band of gpu-oour's score is none"
    assert {name: row["verdict"] for name, row in listed.items()} == {
        "trainer": "suspicious",
        "server": "idle",
        "lonely": "active",
    }
    assert listed["lonely"]["finding"] == "suspicious", "what programs read keeps its values"


@pytest.fixture
def two_clusters() -> Iterator[Api]:
    """The same workload in two clusters; the one in `east` is idle."""
    held = [
        replace(one, container=replace(one.container, cluster=cluster))
        for cluster in ("east", "west")
        for one in [hold(f"GPU-{cluster}", Workload("Job", "ns", "app", cluster), namespace="ns", pod="app-0")]
    ]
    with running_api(make_result(table_of(resting(), working(), allocations=held))) as api:
        yield api


@pytest.mark.parametrize("name", ["east/ns/Job/app", "east/ns/app", "east/job/ns/app", "east/ns/app-0"])
def test_the_cluster_is_part_of_a_name(name: str, two_clusters: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", name, "--server", two_clusters.url]) == 0
    title, verdict, *_ = capsys.readouterr().out.splitlines()
    assert title == "east/ns/Job/app"
    assert " idle, " in verdict


def test_a_name_in_two_clusters_is_ambiguous(two_clusters: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "ns/app", "--server", two_clusters.url]) == 2
    assert "write one of east/ns/Job/app, west/ns/Job/app" in capsys.readouterr().err
    assert main(["idle", "--server", two_clusters.url]) == 0
    assert "east/ns/Job/app" in capsys.readouterr().out


class RefusingReclaim(FakeReclaim):
    """Work on the host holds every workload back."""

    def read_plan(self, *, visible: VisibleNamespaces | None) -> Plan | None:
        reason = Message("CPU: 4 cores", "CPU 4 核")
        decision = decide(self.workloads[0], Outcome.REFUSE)._replace(ask=lambda: (Answer("host", False, reason),))
        return Plan(AT, self.mode, (decision,), None, {Outcome.REFUSE: 1})


@pytest.mark.parametrize(("language", "line"), [("en", "not reclaimed  CPU: 4 cores"), ("zh", "不回收  CPU 4 核")])
def test_what_reclaim_refuses_is_named_beside_the_verdict(
    language: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reclaim = RefusingReclaim([Workload("Job", "vision", "trainer")])
    with running_api(small_result(), reclaim=reclaim) as api:
        assert main(["explain", "trainer", "--server", api.url, "--language", language]) == 0
    assert line in re.sub(r" {2,}", "  ", capsys.readouterr().out)


class StoppingReclaim(FakeReclaim):
    """An action stops a pod without GPUs too, as its policy allows."""

    def read_plan(self, *, visible: VisibleNamespaces | None) -> Plan | None:
        answer = Answer(
            "other_pods", True, Message("also stops head (CPU: 1.50 cores)", "还会停止 head（CPU 1.50 核）")
        )
        others = (OtherPod("head", "uid", cpu_cores=1.5),)
        decision = decide(self.workloads[0])._replace(ask=lambda: (answer,), other_pods=others)
        return Plan(AT, self.mode, (decision,), None, {Outcome.WAIT: 1})


@pytest.mark.parametrize(
    ("language", "line"), [("en", "reclaim  also stops head (CPU: 1.50"), ("zh", "回收  还会停止 head（CPU 1.50")]
)
def test_pods_without_gpus_that_an_action_stops_are_named_with_what_they_use(
    language: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reclaim = StoppingReclaim([Workload("Job", "vision", "trainer")])
    with running_api(small_result(), reclaim=reclaim) as api:
        assert main(["explain", "trainer", "--server", api.url, "--language", language]) == 0
        assert line in re.sub(r" {2,}", "  ", capsys.readouterr().out)
        [row] = api.get("/api/v1/plan").json["items"]
    assert row["other_pods"] == [
        {
            "name": "head",
            "uid": "uid",
            "cpu_cores": 1.5,
            "disk_bytes_per_second": None,
            "network_bytes_per_second": None,
        }
    ]


def stalled_result() -> Result:
    """Four GPUs of a job on the node that the source describes."""
    row = (
        signal(Measure.CORE, 1.0)
        | {(Measure.CORE, Stat.COUNT): 20.0, (Measure.SM_ACTIVE, Stat.PEAK): 0.15}
        | signal(Measure.MEMORY_COPY, 0.0)
        | signal(Measure.TENSOR, 0.0)
        | signal(Measure.MEMORY_USED, 60 * GIB)
    )
    owner = Workload("PyTorchJob", "vision", "gang")
    held = [
        AllocationKey(
            f"GPU-{letter}", "", Container("vision", "gang-0", "", "main", owner, (), AT - DAY), "n1", str(number)
        )
        for number, letter in enumerate("abcd")
    ]
    table = replace(table_of(*[row] * 4, allocations=held), window_seconds=7200.0)
    return make_result(table)


def test_of_a_stalled_workload_xids_processes_and_the_command_for_a_rank_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with running_api(stalled_result()) as api:
        assert main(["explain", "gang", "--server", api.url]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert main(["explain", "gang", "--server", api.url, "--language", "zh"]) == 0
        chinese = capsys.readouterr().out
    assert "n1 GPU 0: XID 79" in shown
    assert "gang-0 on n1 GPU 0: python, pid 4000 of the node (there: py-spy dump --pid 4000)" in shown
    assert "kubectl exec -n vision gang-0 -c main -- py-spy dump --pid PID" in shown
    assert "8.0 GPU-hours so far" in shown
    assert "疑似空转" in chinese


def test_what_cannot_be_read_of_a_stalled_workload_is_said_and_costs_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with running_api(stalled_result(), source=FakeSource(processes_failure="gone")) as api:
        assert main(["explain", "gang", "--server", api.url]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "The XIDs of n1 could not be read." in shown
    assert "Busy without doing anything since" in shown


SERVED = {
    (Measure.REQUESTS, Stat.COUNT): 6.0,
    (Measure.TOKENS, Stat.COUNT): 3000.0,
    (Measure.RUNNING, Stat.PEAK): 1.0,
    (Measure.SILENT, Stat.LOWEST): 0.0,
}
SILENT = {
    (Measure.REQUESTS, Stat.COUNT): 0.0,
    (Measure.TOKENS, Stat.COUNT): 0.0,
    (Measure.SILENT, Stat.LOWEST): 1.0,
}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (working() | SERVED, "36 per hour; tokens per hour: 18,000"),
        (resting() | SILENT, "none since 2026-09-21 14:03 UTC (10m)"),
    ],
    ids=["served", "silent"],
)
def test_requests_of_a_server_are_shown(row: Any, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    with running_api(make_result(table_of(row))) as api:
        assert main(["explain", "team/server", "--server", api.url]) == 0
        shown = capsys.readouterr().out
        assert expected in shown
        assert main(["explain", "team/server", "--server", api.url, "--output", "json"]) == 0
    requests = json.loads(capsys.readouterr().out)["workload"]["requests"]
    assert requests["per_hour"] == row[Measure.REQUESTS, Stat.COUNT] * 6
    assert requests["tokens_per_hour"] == row[Measure.TOKENS, Stat.COUNT] * 6
    assert (requests["silent_since"] is None) is (expected != "none since 2026-09-21 14:03 UTC (10m)")


def test_without_a_server_there_is_no_line_of_requests(analyzer: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "chat/server", "--server", analyzer.url]) == 0
    assert "requests" not in capsys.readouterr().out


def keep_alive_result() -> Result:
    row = resting(2) | signal(Measure.CORE, 0.3)
    held = hold("GPU-a", Workload("Pod", "team", "gpu-keepalive"), namespace="team", pod="gpu-keepalive")
    table = table_of(row, allocations=[held])
    return make_result(replace(table, window_seconds=3600.0))


def test_names_of_known_tools_are_a_hint_beside_keep_alive(capsys: pytest.CaptureFixture[str]) -> None:
    with running_api(keep_alive_result()) as api:
        assert main(["explain", "gpu-keepalive", "--server", api.url]) == 0
        shown = " ".join(capsys.readouterr().out.split())
    assert "keep-alive" in shown
    assert (
        "gpu-keepalive is the name of a tool that keeps GPUs occupied, or contains it. A name proves nothing." in shown
    )
