"""`gpusteward top` on a cluster: a real analyzer, real keys, the screen read as text."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpusteward.analyzer.results import Result
from gpusteward.analyzer.sources.live_readings import PodProcesses
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.analyzer.sources.usage_source import Chart
from gpusteward.analyzer.tables import NodeModel
from gpusteward.cli.main import main
from gpusteward.cli.top.app import Loaded
from gpusteward.core.node.containers import Workload
from gpusteward.core.usages import AllocationKey, Measure
from tests.analyzer.api.sample_results import H100, hold, small_result
from tests.analyzer.api.server import Api, FakeSource, make_result, running_api
from tests.analyzer.usage_tables import GIB, resting, table_of, working
from tests.cli.golden_files import assert_golden
from tests.cli.screens import (
    LARGE,
    SMALL,
    app_of,
    detail_of,
    read_detail,
    read_screen,
    run,
    until,
    until_seen,
    watching,
)

pytestmark = pytest.mark.slow

A10 = "NVIDIA A10"


class PulsingSource(FakeSource):
    """Every series is an hour of work that comes and goes, with a gap in the middle."""

    def read_series(self, allocation: AllocationKey, at: float, *, seconds: float) -> Chart:
        times = [at - seconds + seconds * number / 120 for number in range(121)]
        seen = [instant for number, instant in enumerate(times) if not 50 < number < 70]
        core = [(instant, abs((instant - at) / seconds * 4 % 2 - 1)) for instant in seen]
        return Chart(allocation, {Measure.CORE: core, Measure.MEMORY_USED: [(instant, 40 * GIB) for instant in seen]})


@pytest.fixture
def cluster() -> Iterator[Api]:
    with running_api(small_result(at=float(int(time.time()))), source=PulsingSource()) as api:
        yield api


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("view", ["gpus", "workloads", "tenants"])
def test_the_view_matches_the_golden_file(view: str, size: tuple[int, int], cluster: Api) -> None:
    async def watch() -> None:
        async with watching("--server", cluster.url, "--view", view, size=size) as pilot:
            assert_golden(f"top.{view}.{size[0]}x{size[1]}.txt", read_screen(app_of(pilot)))

    run(watch())


def test_columns_are_aligned_in_chinese(cluster: Api) -> None:
    async def watch() -> None:
        async with watching("--server", cluster.url, "--language", "zh") as pilot:
            assert_golden("top.workloads.zh.txt", read_screen(app_of(pilot)))

    run(watch())


def grown_cluster() -> Result:
    """Long names that differ at their ends, and free GPUs."""
    names = (
        ("Notebook", "student-projects", "lab-unet-ablation-study-1"),
        ("Notebook", "student-projects", "lab-unet-ablation-study-2"),
        ("PyTorchJob", "nlp-research", "moe-allreduce-47nnt-cj8v"),
        ("PyTorchJob", "nlp-research", "moe-allreduce-47nnt-xx2b"),
        ("StatefulSet", "ml-platform", "rerank-api"),
        ("Deployment", "search-ranking-production", "chat-vllm-98mwq"),
    )
    held = [
        hold(f"GPU-{number}", Workload(*name), namespace=name[1], pod=f"{name[2]}-dd9df5cd4c-{number}", node=node)
        for number, name in enumerate(names)
        for node in (f"gpu-worker-pool-a-00{number % 3}",)
    ]
    shared = hold("GPU-5", Workload(*names[4]), namespace=names[4][1], pod="rerank-api-0", node=held[5].node)
    rows = [*(working() if number % 2 else resting(1.0) for number in range(6)), resting(1.0)]
    table = table_of(*rows, allocations=[*held, shared], at=float(int(time.time())))
    fleet = {NodeModel(f"gpu-worker-pool-a-00{number}", H100): 8 for number in range(3)}
    fleet[NodeModel("gpu-worker-pool-b-000", A10)] = 4
    return make_result(replace(table, fleet=fleet))


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("view", ["gpus", "workloads"])
def test_on_a_small_screen_long_names_differ_and_free_gpus_are_shown(view: str, language: str) -> None:
    async def watch(url: str) -> None:
        async with watching("--server", url, "--view", view, "--language", language) as pilot:
            assert_golden(f"top.{view}.long.{language}.txt", read_screen(app_of(pilot)))
            lines = [line for line in read_screen(app_of(pilot)).splitlines()[4:] if line.strip()]
            assert len(lines) == len(set(lines))

    with running_api(grown_cluster()) as api:
        run(watch(api.url))


def test_the_free_gpus_of_a_node_have_no_workload_to_open() -> None:
    async def watch(url: str) -> None:
        async with watching("--server", url, "--view", "gpus") as pilot:
            await pilot.press("G", "enter")
            await until_seen(pilot, "no workload holds this GPU")

    with running_api(grown_cluster()) as api:
        run(watch(api.url))


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_an_opened_workload_matches_the_golden_file(size: tuple[int, int], cluster: Api) -> None:
    async def watch() -> None:
        async with watching("--server", cluster.url, size=size) as pilot:
            await pilot.press("j", "enter")
            await until_seen(pilot, "charts of the last 1h", "memory GPU-b", "reasons")
            await until(pilot, lambda: "4000 python" in read_detail(pilot))
            assert_golden(f"top.workload.{size[0]}x{size[1]}.txt", read_screen(app_of(pilot)))

    run(watch())


def test_the_processes_are_shown_between_reasons_and_evidence(cluster: Api) -> None:
    async def watch() -> None:
        async with watching("--server", cluster.url) as pilot:
            await pilot.press("j", "enter")
            await until(pilot, lambda: "4000 python" in read_detail(pilot))
            reasons, processes = read_detail(pilot).split("\nprocesses\n")
            assert "1 of 2 GPUs of this workload is in use." in reasons
            assert processes.startswith("* 4000 python on n1 GPU 0: SM 25%, 8.0 GiB\n\nevidence\n")

    run(watch())


def test_an_opened_workload_is_shown_in_chinese(cluster: Api) -> None:
    async def watch() -> None:
        async with watching("--server", cluster.url, "--language", "zh") as pilot:
            await pilot.press("j", "enter")
            await until(pilot, lambda: "* 4000 python（n1 GPU 0）：SM 25%，显存 8.0 GiB" in read_detail(pilot))
            await until_seen(pilot, "核心 GPU-a", "显存 GPU-b", "处置上限")

    run(watch())


@pytest.mark.parametrize(
    ("running", "text"),
    [
        (PodProcesses(), "Processes of 1 pod are unknown: no gpusteward agent reports them."),
        (PodProcesses(reported=frozenset({PodKey("vision", "trainer-0")})), "No processes on its GPUs."),
    ],
)
def test_no_processes_and_unknown_processes_have_different_texts(running: PodProcesses, text: str) -> None:
    async def watch(url: str) -> None:
        async with watching("--server", url) as pilot:
            await pilot.press("j", "enter")
            await until(pilot, lambda: text in read_detail(pilot).replace("\n", " "))

    with running_api(small_result(at=time.time()), source=FakeSource(running=running)) as api:
        run(watch(api.url))


def test_an_error_in_reading_processes_leaves_the_rest() -> None:
    async def watch(url: str) -> None:
        async with watching("--server", url) as pilot:
            await pilot.press("j", "enter")
            await until(pilot, lambda: "none of 2 agents responded" in read_detail(pilot))
            await until_seen(pilot, "core GPU-a", "verdict", "1 of 2 GPUs unused")

    with running_api(
        small_result(at=time.time()), source=FakeSource(processes_failure="none of 2 agents responded")
    ) as api:
        run(watch(api.url))


def test_the_help_fits_the_smallest_screen(cluster: Api) -> None:
    async def watch() -> None:
        async with watching("--server", cluster.url) as pilot:
            await pilot.press("question_mark")
            assert_golden("top.help.txt", await until_seen(pilot, "this help", "quit"))
            await pilot.press("escape")
            await until_seen(pilot, "THIS SPELL")

    run(watch())


def test_tab_and_digits_switch_the_view(cluster: Api) -> None:
    async def watch() -> None:
        async with watching("--server", cluster.url) as pilot:
            await pilot.press("tab")
            await until_seen(pilot, "UNKNOWN", "2 rows")
            await pilot.press("tab")
            await until_seen(pilot, "HELD BY", "5 rows")
            await pilot.press("shift+tab")
            await until_seen(pilot, "UNKNOWN", "2 rows")
            await pilot.press("2")
            await until_seen(pilot, "THIS SPELL", "4 rows")

    run(watch())


def test_search_filters_by_words_and_escape_clears_it(cluster: Api) -> None:
    async def watch() -> None:
        async with watching("--server", cluster.url) as pilot:
            await pilot.press("slash", *"train", "enter")
            seen = await until_seen(pilot, "1 row", "/train")
            assert "vision/Job/trainer" in seen
            assert "Deployment/server" not in seen
            await pilot.press("escape")
            await until_seen(pilot, "4 rows")

    run(watch())


def test_a_prompt_closed_with_escape_changes_nothing(cluster: Api) -> None:
    async def watch() -> None:
        async with watching("--server", cluster.url) as pilot:
            await pilot.press("slash", *"q123", "escape")
            await until(pilot, lambda: not app_of(pilot).prompt.is_open)
            await pilot.press("j")
            assert app_of(pilot).table.cursor_row == 1, "the table has the focus again"
            assert "4 rows" in read_screen(app_of(pilot))

    run(watch())


def test_the_filter_key_cycles_through_the_verdicts(cluster: Api) -> None:
    async def watch() -> None:
        async with watching("--server", cluster.url) as pilot:
            for word, rows in (("idle", "1 row"), ("suspicious", "0 rows"), ("unknown", "1 row"), ("active", "2 rows")):
                await pilot.press("f")
                await until_seen(pilot, f"{word}  {rows}")
            await pilot.press("f4")
            await until_seen(pilot, "4 rows")

    run(watch())


def test_the_sort_keys_cycle_through_the_columns_and_reverse_the_order(cluster: Api) -> None:
    async def watch() -> None:
        async with watching("--server", cluster.url) as pilot:
            await until_seen(pilot, "THIS SPELL▼")
            await pilot.press("s")
            await until_seen(pilot, "WORKLOAD▲")
            await pilot.press("f6")
            await until(pilot, lambda: app_of(pilot).table.items[0]["idle_gpus"] == 0)
            assert "IDLE GPUS▲" in read_screen(app_of(pilot))
            await pilot.press("S")
            await until(pilot, lambda: app_of(pilot).table.items[0]["name"] == "server")
            await pilot.press("colon", *"sort -score", "enter")
            await until(pilot, lambda: app_of(pilot).table.items[0]["name"] == "trainer")
            assert app_of(pilot).table.items[-1]["score"] is None, "unknown values come last in both directions"

    run(watch())


def test_commands_follow_a_colon(cluster: Api) -> None:
    async def watch() -> None:
        async with watching("--server", cluster.url) as pilot:
            await pilot.press("colon", *"gpus", "enter")
            await until_seen(pilot, "HELD BY", "5 rows")
            await pilot.press("colon", *"sort score", "enter")
            await until_seen(pilot, "SCORE▲")
            await pilot.press("colon", *"filter idle", "enter")
            await until_seen(pilot, "idle  2 rows")
            await pilot.press("colon", *"gpsu", "enter")
            await until_seen(pilot, "unknown command", "'gpsu'", "'gpu'")
            await pilot.press("colon", *"q", "enter")
            await until(pilot, lambda: not app_of(pilot).is_running)

    run(watch())


def test_enter_opens_the_workloads_of_a_tenant_and_escape_returns(cluster: Api) -> None:
    async def watch() -> None:
        async with watching("--server", cluster.url, "--view", "tenants") as pilot:
            await pilot.press("down", "enter")
            seen = await until_seen(pilot, "tenant chat", "2 rows")
            assert "trainer" not in seen
            await pilot.press("escape")
            await until_seen(pilot, "UNKNOWN", "2 rows")

    run(watch())


def test_enter_on_a_gpu_opens_the_workload_that_holds_it(cluster: Api) -> None:
    async def watch() -> None:
        async with watching("--server", cluster.url, "--view", "gpus") as pilot:
            await pilot.press("j", "j", "enter")
            await until_seen(pilot, "chat/Deployment/server", "reasons")
            assert str(detail_of(pilot).workload) == "chat/Deployment/server"
            await pilot.press("escape")
            await until_seen(pilot, "HELD BY")

    run(watch())


def test_a_gpu_with_several_holders_offers_a_choice() -> None:
    owners = [Workload("Job", "a", "one"), Workload("Job", "b", "two")]
    held = [hold("GPU-a", owner, namespace=owner.namespace, pod=owner.name) for owner in owners]
    result = make_result(table_of(working(), resting(), allocations=held, at=time.time()))

    async def watch(url: str) -> None:
        async with watching("--server", url, "--view", "gpus") as pilot:
            await pilot.press("enter")
            await until_seen(pilot, "a/Job/one", "b/Job/two")
            await pilot.press("j", "enter")  # the one with the lower score is the first
            await until(pilot, lambda: str(getattr(pilot.app.screen, "workload", "")) == "a/Job/one")

    with running_api(result, source=PulsingSource()) as api:
        run(watch(api.url))


def test_an_error_in_reading_charts_leaves_the_rest() -> None:
    async def watch(url: str) -> None:
        async with watching("--server", url) as pilot:
            await pilot.press("j", "enter")
            await until_seen(pilot, "the engine is down", "verdict", "1 of 2 GPUs unused")

    with running_api(small_result(at=time.time()), source=FakeSource(series_failure="the engine is down")) as api:
        run(watch(api.url))


def test_a_chart_is_labelled_with_the_first_part_of_the_uuid() -> None:
    owner = Workload("Job", "a", "one")
    uuid = "GPU-76d91b17-a333-669c-24a3-1d73acc1b461"
    held = [replace(hold(uuid, owner, namespace="a", pod="one"), gpu_instance=instance) for instance in ("", "3")]
    result = make_result(table_of(working(), working(), allocations=held, at=time.time()))

    async def watch(url: str) -> None:
        async with watching("--server", url) as pilot:
            await pilot.press("enter")
            await until_seen(pilot, "core GPU-76d91b17 ", "core GPU-76d91b17/3 ")

    with running_api(result, source=PulsingSource()) as api:
        run(watch(api.url))


def test_the_time_range_of_the_charts_cycles(cluster: Api) -> None:
    async def watch() -> None:
        async with watching("--server", cluster.url) as pilot:
            await pilot.press("j", "enter")
            await until_seen(pilot, "charts of the last 1h", "core GPU-b")
            await pilot.press("t")
            await until_seen(pilot, "charts of the last 6h", "core GPU-b")

    run(watch())


def test_keys_of_the_table_do_nothing_while_a_workload_is_open(cluster: Api) -> None:
    async def watch() -> None:
        async with watching("--server", cluster.url) as pilot:
            await pilot.press("enter")
            await until_seen(pilot, "charts of the last 1h", "reasons")
            await pilot.press("tab", "s", "slash", "enter", "3", "colon")
            app = app_of(pilot)
            assert (app.request.view, app.request.sort) == ("workloads", "-idle_cost")
            assert not app.prompt.is_open
            await pilot.press("escape")
            await until_seen(pilot, "THIS SPELL▼")

    run(watch())


@pytest.mark.parametrize("key", ["q", "f10", "ctrl+c"])
def test_the_usual_keys_quit(key: str, cluster: Api) -> None:
    async def watch() -> None:
        async with watching("--server", cluster.url) as pilot:
            await pilot.press(key)
            await until(pilot, lambda: not app_of(pilot).is_running)

    run(watch())


def test_responses_that_arrive_while_the_ui_is_shutting_down_are_ignored(cluster: Api) -> None:
    async def watch() -> None:
        async with watching("--server", cluster.url) as pilot:
            app = app_of(pilot)
            await app.screen.query("#title").remove()
            app.on_loaded(Loaded("rows", app.request, app.listing))

    run(watch())


def test_a_refresh_that_is_due_when_the_ui_has_shut_down_is_ignored(cluster: Api) -> None:
    async def watch() -> None:
        async with watching("--server", cluster.url) as pilot:
            app = app_of(pilot)
            await pilot.press("q")
        assert not app.screen_stack
        app.action_refresh()

    run(watch())


def test_top_prints_totals_and_sorts_as_chosen(analyzer: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--server", analyzer.url, "-o", "wide", "--sort=-score"]) == 0
    _, first, *_, total, as_of = capsys.readouterr().out.splitlines()
    assert as_of == "as of 14:13:20"
    assert first.startswith("vision/Job/trainer ")
    assert total.split()[:3] == ["4", "rows", "2/4.14"]
    assert main(["top", "--server", analyzer.url, "-n", "chat", "-o", "json"]) == 0
    assert {row["namespace"] for row in json.loads(capsys.readouterr().out)} == {"chat"}


@pytest.mark.parametrize(
    ("flags", "problem"),
    [(["-n", "cat"], "did you mean 'chat'?"), (["--sort", "price"], "is not one of cost, rate, gpus, since, name")],
)
def test_an_unknown_namespace_or_order_of_top_is_a_usage_error(
    flags: list[str], problem: str, analyzer: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top", "--server", analyzer.url, "-o", "table", *flags]) == 2
    assert problem in capsys.readouterr().err
