"""Builds every part once, and lets them run until a signal ends it."""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Protocol

import uvicorn
from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool

from gpusteward.analyzer.active_source import CurrentSource
from gpusteward.analyzer.aftermath import Aftermath
from gpusteward.analyzer.api.build import build_api
from gpusteward.analyzer.api.dependencies import Serving
from gpusteward.analyzer.api.event_feed import Event, EventFeed, describe_changes, describe_cycle
from gpusteward.analyzer.api.http.concurrency_limits import Places
from gpusteward.analyzer.api.metrics_bodies import render_result
from gpusteward.analyzer.api.publishing import put_up
from gpusteward.analyzer.api.result_store import Board
from gpusteward.analyzer.cycle import Cycle, Parts
from gpusteward.analyzer.explain.explainer import Explainer
from gpusteward.analyzer.listen_socket import configure_server, open_socket
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.runtime_settings import Steering
from gpusteward.analyzer.settings.file import SettingsFile
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.owners.cluster_owners import ClusterOwners, open_owners
from gpusteward.analyzer.tables import UsageTable
from gpusteward.analyzer.worker import Worker
from gpusteward.logs import ROOT, Log
from gpusteward.process_memory import limit_malloc_arenas

log = Log(__name__)

LOOK_SECONDS = 2.0
"""How often the files of settings and tokens are looked at; a look costs two stats."""
THREADS_GRACE_SECONDS = 0.5
CYCLE_GRACE_SECONDS = 1.5
"""With the grace for requests below the 5 s within which the program ends, whatever the engine does."""


class Owners(Protocol):
    """Who knows what pods belong to."""

    def name(self, table: UsageTable) -> UsageTable:
        """The same table with what is known of the pods."""

    def read_wish(self, namespace: str, pod: str) -> str:
        """Which channel a pod or its owner wishes to be told through; empty: none."""


class Analyzer:
    """Every part of the program."""

    def __init__(self, file: SettingsFile, *, owners: Owners | None = None) -> None:
        """Raises ConfigurationError for settings that cannot be used. Without `owners`, labels tell them."""
        settings = file.settings
        owners = owners or ClusterOwners(None)
        self.board, self.events = Board(), EventFeed()
        self.source, self.explainer = CurrentSource(settings), Explainer(settings.ai)
        self.steering = Steering(file, source=self.source, explainer=self.explainer)
        self.aftermath = Aftermath(settings, lambda: self.steering.settings, read_wish=owners.read_wish)
        cycle = Cycle(Parts(self.source, owners.name, self.explainer, self.aftermath.recollect))
        self.worker = Worker(cycle, self.steering.begin_cycle, self._publish, self.aftermath.follow_failure)
        self.api = build_api(self._serving(), lifespan=self._live)

    def _serving(self) -> Serving:
        return Serving(
            board=self.board,
            events=self.events,
            account=self.worker.account,
            tally=self.explainer.tally,
            settings=lambda: self.steering.settings,
            roles=lambda: self.steering.roles,
            change_settings=self._change_settings,
            ask_cycle=lambda use_ai: self.worker.ask_cycle(use_ai=use_ai),
            describe_source=self.source.describe,
            read_series=lambda allocation, at, seconds: self.source.read_series(allocation, at, seconds=seconds),
            read_processes=self.source.read_processes,
            chart_places=Places(),
            process_places=Places(work="processes"),
            count_queries=lambda: self.source.asked,
            count_reloads=self.steering.count_reloads,
            read_report=self.aftermath.read_report,
            describe_aftermath=self.aftermath.describe,
            read_deliveries=self.aftermath.notifier.read_deliveries,
            retry_delivery=self.aftermath.notifier.retry_delivery,
        )

    def _change_settings(self, values: Mapping[str, object]) -> Settings:
        settings = self.steering.change(values)
        self.worker.ask_cycle()  # also ends a wait of the former interval
        return settings

    def _publish(self, result: Result) -> None:
        """In the worker's thread."""
        news = self._describe(result)
        put_up(self.board, result)
        for event in news:
            self.events.tell_from_thread(event)
        self.board.page = render_result(result)
        self.aftermath.follow(result)

    def _describe(self, result: Result) -> list[Event]:
        before = self.board.posted
        changes = describe_changes(before.result if before else None, result)
        return [describe_cycle(result), *([] if changes is None else [changes])]

    @asynccontextmanager
    async def _live(self, _: FastAPI) -> AsyncIterator[None]:
        self.events.open()
        await run_in_threadpool(len, "")  # loads what threads need: the first request should not wait for it
        self.aftermath.start()
        self.worker.start()
        watch = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch
            await asyncio.to_thread(self.worker.stop, timeout_seconds=CYCLE_GRACE_SECONDS)
            await asyncio.to_thread(self.aftermath.stop)

    async def _watch(self) -> None:
        """A changed file is acted upon at once, not at the end of an interval of minutes."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if await asyncio.to_thread(self.steering.look):
                self.worker.ask_cycle()

    def release(self) -> None:
        """Let go of everything outside: what waits for it comes back. May be called from any thread."""
        self.explainer.interrupt()
        self.source.close()


class _Server(uvicorn.Server):
    """Signals are not its own: others have to hear of them first."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run_analyzer(
    file: SettingsFile,
    *,
    owners: Owners | None = None,
    prepare: Callable[[Analyzer], None] = lambda _: None,
    announce: Callable[[str], None] = lambda _: None,
) -> int:
    """Serve until SIGTERM or SIGINT. Raises ConfigurationError for what a person can mend.

    `owners`: who knows them, if not the API server. `prepare` has the whole before it runs, `announce` hears where it
    listens.
    """
    limit_malloc_arenas()
    listening = open_socket(file.settings.server)
    analyzer = Analyzer(file, owners=owners or open_owners(file.settings.kubernetes, os.environ))
    prepare(analyzer)
    _lead_logs_of_uvicorn()
    server = _Server(configure_server(analyzer.api))
    host, port = listening.getsockname()[:2]
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    log.info("analyzer_started", address=url)
    announce(url)
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(_serve(analyzer, server, listening))
    log.info("analyzer_stopped")
    return 0


def _lead_logs_of_uvicorn() -> None:
    """Into our own log, in its form; only what is wrong."""
    logger = logging.getLogger("uvicorn")
    logger.parent = logging.getLogger(ROOT)
    logger.setLevel(logging.WARNING)


async def _serve(analyzer: Analyzer, server: uvicorn.Server, listening: socket.socket) -> None:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        server.force_exit = server.should_exit  # the second signal waits for nobody
        server.should_exit = True
        analyzer.events.close()
        threading.Thread(target=analyzer.release, name="release", daemon=True).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    await server.serve(sockets=[listening])


def leave_threads_behind() -> None:
    """End the program although a query hangs in a thread the interpreter would wait for. The last call of all."""
    deadline = time.monotonic() + THREADS_GRACE_SECONDS
    left = [thread for thread in threading.enumerate() if thread is not threading.main_thread() and not thread.daemon]
    for thread in left:
        thread.join(max(0.0, deadline - time.monotonic()))
    left = [thread for thread in left if thread.is_alive()]
    if left:
        log.warning("threads_left_behind", threads=",".join(thread.name for thread in left))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
