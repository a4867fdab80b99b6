"""The terminal UI without a terminal: driven by keys, read as text."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from textual.pilot import Pilot

from gpusteward.cli.commands import top
from gpusteward.cli.top.app import TopApp
from gpusteward.cli.top.detail import DetailScreen

SMALL, LARGE = (80, 24), (140, 40)
_TIMES = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"), "2026-01-02 03:04 UTC"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "03:04:05"),
)


def read_screen(app: TopApp) -> str:
    """The text on the screen, with fixed times. Textual exports only SVG; its compositor has the lines."""
    strips = app.screen._compositor.render_strips()
    text = "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips) + "\n"
    for pattern, stand_in in _TIMES:
        text = pattern.sub(stand_in, text)
    return text


@asynccontextmanager
async def watching(*flags: str, size: tuple[int, int] = SMALL) -> AsyncIterator[Pilot[int]]:
    """`gpusteward top` after its first request."""
    app = top.make_app(top.build_parser().parse(list(flags)))
    app.source.title = "http://server:8080"
    async with app.run_test(size=size, notifications=True) as pilot:
        await until(pilot, lambda: app.listing is not None or bool(app.error))
        yield pilot


async def until(pilot: Pilot[int], condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, read_screen(app_of(pilot))
        await pilot.pause(0.02)
    await pilot.pause()


async def until_seen(pilot: Pilot[int], *words: str) -> str:
    await until(pilot, lambda: all(word in read_screen(app_of(pilot)) for word in words))
    return read_screen(app_of(pilot))


def app_of(pilot: Pilot[int]) -> TopApp:
    app = pilot.app
    assert isinstance(app, TopApp)
    return app


def detail_of(pilot: Pilot[int]) -> DetailScreen:
    screen = pilot.app.screen
    assert isinstance(screen, DetailScreen)
    return screen


def read_detail(pilot: Pilot[int]) -> str:
    """The whole text of the opened workload, also below the screen; empty if none is open."""
    screen = pilot.app.screen
    return "\n".join(line.plain for line in screen.describe(100)) if isinstance(screen, DetailScreen) else ""


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 100))
