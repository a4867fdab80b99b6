"""`gpusteward top --agent`: one machine, with the agent's HTTP server and with a whole agent on simulated GPUs."""

import os
from collections.abc import Iterator

import pytest

from gpusteward.agent.http.server import serve
from tests.agent.http.clients import LOOPBACK
from tests.agent.test_agent_process import RunningAgent, is_ready, running
from tests.cli.golden_files import assert_golden
from tests.cli.nodes import AT, SnapshotPages, make_snapshot
from tests.cli.screens import LARGE, SMALL, app_of, read_screen, run, until, until_seen, watching

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("view", ["gpus", "workloads", "tenants"])
def test_the_view_matches_the_golden_file(view: str, size: tuple[int, int], node_url: str) -> None:
    async def watch() -> None:
        async with watching("--agent", node_url, "--view", view, size=size) as pilot:
            assert_golden(f"top.node.{view}.{size[0]}x{size[1]}.txt", read_screen(app_of(pilot)))

    run(watch())


def test_an_opened_workload_shows_its_gpus_and_processes(node_url: str) -> None:
    async def watch() -> None:
        async with watching("--agent", node_url, "--view", "workloads") as pilot:
            await pilot.press("enter")
            assert_golden("top.node.workload.txt", await until_seen(pilot, "processes", "holds", "core GPU 1"))

    run(watch())


def test_enter_on_a_gpu_opens_the_workload_that_holds_it(node_url: str) -> None:
    async def watch() -> None:
        async with watching("--agent", node_url) as pilot:
            await pilot.press("enter")
            await until_seen(pilot, "holds  GPU 0")

    run(watch())


def test_rows_of_an_agent_cannot_be_filtered_by_verdict(node_url: str) -> None:
    async def watch() -> None:
        async with watching("--agent", node_url) as pilot:
            await pilot.press("f")
            await until_seen(pilot, "an agent has no verdicts")
            await pilot.press("slash", *"finetune", "enter")
            await until_seen(pilot, "/finetune  2 rows")

    run(watch())


def test_charts_show_the_history_since_the_start() -> None:
    pages = SnapshotPages()
    server = serve(pages, LOOPBACK)

    async def watch() -> None:
        async with watching("--agent", server.url, "--view", "workloads", "--refresh", "0.05") as pilot:
            app = app_of(pilot)
            for step in range(1, 11):
                pages.body = SnapshotPages(make_snapshot(AT + 60 * step)).body
                await until(pilot, lambda: app.listing and app.listing.at == AT + 60 * step)  # noqa: B023 - waited for
            await pilot.press("enter")
            seen = await until_seen(pilot, "charts of the last 10m", "core GPU 0")
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


def test_the_data_of_a_running_agent_is_refreshed(agent: RunningAgent) -> None:
    async def watch() -> None:
        async with watching("--agent", agent.url, "--refresh", "0.2") as pilot:
            app = app_of(pilot)
            await until_seen(pilot, "sim-0", "8 GPUs", "H100")
            first = app.listing.at
            await until(pilot, lambda: app.listing.at > first)
            await pilot.press("3")
            await until_seen(pilot, "WORKLOADS", "PROCESSES")

    run(watch())


def test_an_agent_that_exits_is_reported() -> None:
    server = serve(SnapshotPages(), LOOPBACK)

    async def watch() -> None:
        async with watching("--agent", server.url, "--refresh", "0.1") as pilot:
            server.close()
            seen = await until_seen(pilot, "no data: cannot connect to the agent")
            assert "H100" in seen

    run(watch())
