"""`gpusteward ps` with the agent's HTTP server, and with a whole agent."""

import csv
import io
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import bcrypt
import msgspec
import pytest

from gpusteward.agent.http.server import serve
from gpusteward.analyzer.sources.live_readings import PodProcesses, RunningProcess
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.cli.api.client import Peer, make_client
from gpusteward.cli.api.workloads import WorkloadReference
from gpusteward.cli.main import main
from gpusteward.cli.top.agent_source import AgentSource
from gpusteward.cli.top.cluster_source import ClusterSource
from gpusteward.http_server.web_config import WebConfigFile
from tests.agent.http.clients import LOOPBACK
from tests.agent.test_agent_process import RunningAgent, is_ready, running
from tests.analyzer.api.sample_results import hold
from tests.analyzer.api.server import Api, FakeSource, make_result, running_api
from tests.analyzer.usage_tables import resting, table_of
from tests.cli.golden_files import assert_golden
from tests.cli.nodes import SnapshotPages, make_snapshot


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_table_matches_the_golden_file(language: str, node_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ps", "--all", "--agent", node_url, "--language", language]) == 0
    assert_golden(f"ps.{language}.txt", capsys.readouterr().out)


def test_the_processes_of_a_node_come_through_the_analyzer(analyzer: Api, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["ps", "--node", "n1", "--server", analyzer.url, "--output", "json"]
    assert main(arguments) == 0
    rows = json.loads(capsys.readouterr().out)
    trainer = next(row for row in rows if row["pod"] == "trainer-0")
    assert (trainer["node"], trainer["gpu"]) == ("n1", "0")
    assert (trainer["namespace"], trainer["workload"], trainer["pid"]) == ("vision", "Job/trainer", 4000)
    assert trainer["model"]
    assert main([*arguments, "--all"]) == 0
    everything = json.loads(capsys.readouterr().out)
    held = {row["pod"] for row in analyzer.get("/api/v1/allocations?node=n1&limit=100").json["items"]}
    assert {row["pod"] for row in everything} == held


def test_a_node_that_the_analyzer_does_not_know_is_reported(analyzer: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ps", "--node", "nowhere", "--server", analyzer.url]) == 1
    assert "no node of this name has a GPU" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--node", "n1", "--agent", "a:1"], ["--server", "a:1"], ["--token-file", "x"]])
def test_agent_and_analyzer_cannot_be_mixed(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ps", *flags]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(("language", "title"), [("en", "HOLDER"), ("zh", "占用者")])
def test_without_kubernetes_the_column_is_called_holder(
    language: str, title: str, capsys: pytest.CaptureFixture[str]
) -> None:
    holder = {"namespace": "alice", "pod": "train", "workload": {"kind": "Program", "name": "train"}}
    process = {"pid": 7, "gpu_uuid": "GPU-x", "name": "/opt/train", "place": "container", "container": holder}
    server = serve(SnapshotPages({"node": "n", "processes": [process], "holders_are_processes": True}), LOOPBACK)
    try:
        assert main(["ps", "--agent", server.url, "--language", language]) == 0
    finally:
        server.close()
    titles, row = capsys.readouterr().out.splitlines()
    assert titles.split()[-1] == title
    assert row.split()[-1] == "alice/train"


PAIRED = hold("GPU-0", None, namespace="team", pod="swarm-0")
PAIR = [
    {"namespace": "ml", "pod": name, "name": "main", "workload": {"kind": "Deployment", "name": name}}
    for name in ("requester-0", "launcher-0", "requester-1")
]


@pytest.mark.parametrize(
    ("language", "lines"),
    [
        ("en", ["ml/requester-0 (used by launcher-0)", "ml/requester-1 (used by launcher-1, no processes)"]),
        ("zh", ["ml/requester-0（由 launcher-0 使用）", "ml/requester-1（由 launcher-1 使用，无进程）"]),
    ],
)
def test_a_pair_is_shown_by_its_holder_and_the_pod_that_uses_the_gpu(
    language: str, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    holder, other, asleep = PAIR
    running = {"pid": 7, "gpu_uuid": "GPU-x", "name": "vllm", "place": "container"}
    held = [
        {"container": one, "gpu_uuid": uuid, "used_by": user}
        for one, uuid, user in ((holder, "GPU-x", "launcher-0"), (asleep, "GPU-y", "launcher-1"))
    ]
    process = running | {"container": other, "works_for": holder}
    readings = [{"gpu": {"uuid": uuid, "index": number}} for number, uuid in enumerate(("GPU-x", "GPU-y"))]
    page = {"node": "n", "readings": readings, "processes": [process], "allocations": held}
    server = serve(SnapshotPages(page), LOOPBACK)
    try:
        assert main(["ps", "--all", "--agent", server.url, "--language", language]) == 0
        table = capsys.readouterr().out
        assert main(["ps", "--agent", server.url, "-o", "json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        source = AgentSource(make_client(Peer.AGENT, server.url), "en")
        (opened,) = source.read_processes(WorkloadReference("Deployment", "ml", "requester-0"))
    finally:
        server.close()
    assert [line.endswith(text) for line, text in zip(table.splitlines()[1:], lines, strict=True)] == [True, True]
    assert (row["pod"], row["works_for"]) == ("launcher-0", "requester-0")
    assert opened.text.endswith(" (used by launcher-0)")


def test_a_pair_is_shown_through_the_analyzer(capsys: pytest.CaptureFixture[str]) -> None:
    asleep = replace(hold("GPU-2", None, namespace="team", pod="swarm-2"), gpu_index="2", used_by="launcher-2")
    result = make_result(table_of(*[resting()] * 2, allocations=[replace(PAIRED, used_by="launcher-0"), asleep]))
    process = RunningProcess(PodKey("team", "launcher-0"), "main", "n1", "0", "GPU-0", "", "", 7, "vllm")
    with running_api(result, source=FakeSource(running=PodProcesses([process]))) as api:
        assert main(["ps", "--node", "n1", "--all", "--server", api.url]) == 0
        source = ClusterSource(make_client(Peer.ANALYZER, api.url), "zh")
        (line, *_) = source.read_processes(WorkloadReference("Pod", "team", "swarm-0"))
        assert line.text.endswith("（由 launcher-0 使用）")
    shown = [line.partition("team/")[2] for line in capsys.readouterr().out.splitlines()[1:]]
    assert shown == ["swarm-0 (used by launcher-0)", "swarm-2 (used by launcher-2, no processes)"]


def test_every_process_is_listed_with_its_pod(node_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ps", "--agent", node_url, "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    snapshot = make_snapshot()
    assert len(rows) == len(snapshot.processes)
    assert {row["pid"] for row in rows} == {process.pid for process in snapshot.processes}
    named = {(row["pid"], row["pod"]) for row in rows if row["pod"]}
    assert named == {(one.pid, one.container.pod) for one in snapshot.processes if one.container and one.container.pod}


def test_all_adds_pods_that_hold_a_gpu_without_a_process(node_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ps", "--agent", node_url, "-o", "csv"]) == 0
    with_process = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert main(["ps", "--all", "--agent", node_url, "-o", "csv"]) == 0
    all_rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    without_process = [row for row in all_rows if not row["pid"]]
    assert len(all_rows) == len(with_process) + len(without_process)
    assert without_process
    assert all(row["pod"] for row in without_process)


def test_unknown_values_are_a_dash_not_a_zero(capsys: pytest.CaptureFixture[str]) -> None:
    process = {"pid": 7, "gpu_uuid": "GPU-x", "name": "x", "memory_bytes": None, "sm_ratio": None, "place": "host"}
    pages = SnapshotPages({"node": "n", "processes": [process, {**process, "pid": 8, "sm_ratio": 0.0}]})
    server = serve(pages, LOOPBACK)
    try:
        assert main(["ps", "--agent", server.url]) == 0
    finally:
        server.close()
    first, second = capsys.readouterr().out.splitlines()[1:]
    assert first.split()[:5] == ["-", "7", "x", "-", "-"]
    assert second.split()[3] == "0%"


def test_rows_are_filtered_by_gpu_and_namespace(node_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ps", "--agent", node_url, "-o", "json", "--gpu", "0"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows
    assert {row["gpu"].partition("/")[0] for row in rows} == {"0"}
    assert main(["ps", "--agent", node_url, "-o", "json", "-n", rows[0]["namespace"]]) == 0
    assert {row["namespace"] for row in json.loads(capsys.readouterr().out)} == {rows[0]["namespace"]}


def test_names_of_processes_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    process = {"pid": 7, "gpu_uuid": "GPU-x", "name": "evil\x1b]0;owned\x07\n[bold]训练", "place": "host"}
    server = serve(SnapshotPages({"node": "n", "processes": [process]}), LOOPBACK)
    try:
        for output in ("table", "json", "csv"):
            assert main(["ps", "--agent", server.url, "-o", output]) == 0
            printed = capsys.readouterr().out
            assert "\x1b" not in printed
            assert "\x07" not in printed
            assert "[bold]训练" in printed
    finally:
        server.close()


def test_failures_of_the_agent_are_printed_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = {"node": "n", "failures": [{"collector": "kubelet", "reason": "the socket is missing"}]}
    server = serve(SnapshotPages(snapshot), LOOPBACK)
    try:
        assert main(["ps", "--agent", server.url]) == 0
    finally:
        server.close()
    printed = capsys.readouterr().err
    assert printed == "gpusteward: kubelet: the socket is missing\nNo processes on the GPUs of n.\n"


@pytest.mark.parametrize("body", [b"null", b"[1, 2]", b'{"processes": 5, "readings": [null, {"gpu": 3}]}'])
def test_an_invalid_snapshot_is_treated_as_empty(body: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    pages = SnapshotPages()
    pages.body = body
    server = serve(pages, LOOPBACK)
    try:
        assert main(["ps", "--all", "--agent", server.url, "-o", "json"]) == 0
    finally:
        server.close()
    assert json.loads(capsys.readouterr().out) == []


def test_a_password_in_the_address_is_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hashed = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()
    (tmp_path / "web.yml").write_text(f"basic_auth_users:\n  alice: {hashed}\n")
    config = WebConfigFile(tmp_path / "web.yml")
    server = serve(SnapshotPages(), LOOPBACK, web=config.current)
    host = server.url.removeprefix("http://")
    try:
        assert main(["ps", "--agent", server.url]) == 1
        refused = capsys.readouterr().err
        assert main(["ps", "--agent", f"http://alice:right@{host}"]) == 0
    finally:
        server.close()
    assert "requires a user name and password" in refused


@pytest.fixture(scope="module")
def agent() -> Iterator[RunningAgent]:
    with running("--source=simulated", "--node-name=sim-0", env=dict(os.environ)) as one:
        one.wait_for(is_ready)
        yield one


def test_a_whole_agent_on_simulated_gpus_is_listed(agent: RunningAgent, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ps", "--agent", agent.url, "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    snapshot = msgspec.json.decode(agent.get("/snapshot")[1])
    assert len(rows) == len(snapshot["processes"]) > 5
    assert {row["node"] for row in rows} == {"sim-0"}
    assert all(row["model"] for row in rows)
