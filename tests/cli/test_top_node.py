"""`gpusteward top --agent`: one machine, by its agent's own HTTP server and by a whole agent on simulated GPUs."""

import os
from collections.abc import Iterator

import pytest

from gpusteward.agent.http.server import serve
from tests.agent.http.clients import LOOPBACK
from tests.agent.test_agent_process import RunningAgent, is_ready, running
from tests.cli.golden_files import assert_golden
from tests.cli.nodes import AT, SnapshotAnswers, make_snapshot
from tests.cli.screens import LARGE, SMALL, app_of, read_screen, run, until, until_seen, watching


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("view", ["gpus", "workloads", "tenants"])
def test_the_view_is_the_one_that_was_found_right(view: str, size: tuple[int, int], node_url: str) -> None:
    async def watch() -> None:
        async with watching("--agent", node_url, "--view", view, size=size) as pilot:
            assert_golden(f"top.node.{view}.{size[0]}x{size[1]}.txt", read_screen(app_of(pilot)))

    run(watch())


def test_a_workload_opened_shows_its_gpus_and_processes(node_url: str) -> None:
    async def watch() -> None:
        async with watching("--agent", node_url, "--view", "workloads") as pilot:
            await pilot.press("enter")
            assert_golden("top.node.workload.txt", await until_seen(pilot, "processes", "holds"))

    run(watch())


def test_a_gpu_leads_to_the_workloads_that_hold_it(node_url: str) -> None:
    async def watch() -> None:
        async with watching("--agent", node_url) as pilot:
            await pilot.press("enter")
            await until_seen(pilot, "holds  GPU 0")

    run(watch())


def test_there_are_no_verdicts_to_filter_by(node_url: str) -> None:
    async def watch() -> None:
        async with watching("--agent", node_url) as pilot:
            await pilot.press("f")
            await until_seen(pilot, "an agent judges nothing")
            await pilot.press("slash", *"finetune", "enter")
            await until_seen(pilot, "/finetune  2 rows")

    run(watch())


def test_the_course_is_what_was_seen_while_watching() -> None:
    answers = SnapshotAnswers()
    server = serve(answers, LOOPBACK)

    async def watch() -> None:
        async with watching("--agent", server.url, "--view", "workloads", "--refresh", "0.05") as pilot:
            app = app_of(pilot)
            for step in range(1, 11):
                answers.body = SnapshotAnswers(make_snapshot(AT + 60 * step)).body
                await until(pilot, lambda: app._given and app._given.at == AT + 60 * step)  # noqa: B023 - waited for
            await pilot.press("enter")
            seen = await until_seen(pilot, "course of the last 10m", "core GPU 0")
            line = next(line for line in seen.splitlines() if "core GPU 0" in line)
            assert sum(one in "▁▂▃▄▅▆▇█" for one in line) > 30

    try:
        run(watch())
    finally:
        server.close()


@pytest.fixture(scope="module")
def agent() -> Iterator[RunningAgent]:
    with running("--source=simulated", "--node-name=sim-0", env=dict(os.environ)) as one:
        one.wait_for(is_ready)
        yield one


def test_a_whole_agent_is_watched_as_it_goes_on(agent: RunningAgent) -> None:
    async def watch() -> None:
        async with watching("--agent", agent.url, "--refresh", "0.2") as pilot:
            app = app_of(pilot)
            await until_seen(pilot, "sim-0", "8 GPUs", "H100")
            first = app._given.at
            await until(pilot, lambda: app._given.at > first)
            await pilot.press("3")
            await until_seen(pilot, "WORKLOADS", "PROCESSES")

    run(watch())


def test_an_agent_that_ends_is_shown_as_lost() -> None:
    server = serve(SnapshotAnswers(), LOOPBACK)

    async def watch() -> None:
        async with watching("--agent", server.url, "--refresh", "0.1") as pilot:
            server.close()
            seen = await until_seen(pilot, "lost: cannot connect to the agent")
            assert "H100" in seen

    run(watch())
