"""Creates and wires all components of the analyzer, and runs them until a signal ends the program."""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Protocol

import uvicorn
from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool

from gpusteward.analyzer.active_source import CurrentSource
from gpusteward.analyzer.api.build import build_api
from gpusteward.analyzer.api.dependencies import ApiDependencies
from gpusteward.analyzer.api.event_feed import EventFeed
from gpusteward.analyzer.api.publisher import ResultPublisher
from gpusteward.analyzer.api.result_store import ResultStore
from gpusteward.analyzer.explain.explainer import Explainer
from gpusteward.analyzer.ledger_access import LedgerAccess
from gpusteward.analyzer.listen_socket import configure_server, open_socket
from gpusteward.analyzer.notify.notifier import Notifier
from gpusteward.analyzer.pipeline import Components, OwnerNames, Pipeline
from gpusteward.analyzer.runtime_settings import RuntimeSettings
from gpusteward.analyzer.scheduler import CycleScheduler
from gpusteward.analyzer.settings.file import SettingsFile
from gpusteward.analyzer.sources.owners.cluster_owners import ClusterOwners, open_owners
from gpusteward.logs import ROOT, Log
from gpusteward.process_memory import limit_malloc_arenas

log = Log(__name__)

RELOAD_SECONDS = 2.0
"""How often the files of settings and tokens are checked for changes; a check costs two stat calls."""
THREADS_GRACE_SECONDS = 0.5
CYCLE_GRACE_SECONDS = 1.5
NOTIFIER_GRACE_SECONDS = 1.0
"""Together with the grace for requests below the 5 s within which the program ends, whatever the engine does."""


class Owners(OwnerNames, Protocol):
    """Knows the owners of pods and their annotations."""

    def read_wish(self, namespace: str, pod: str) -> str:
        """The channel in the annotation gpusteward.io/notify of a pod or its owner; empty: none."""


class Analyzer:
    """Every component of the program."""

    def __init__(self, file: SettingsFile, *, owners: Owners | None = None) -> None:
        """Raises ConfigurationError for settings that cannot be used. Without `owners`, metric labels name them."""
        settings, owners = file.settings, owners or ClusterOwners(None)
        self.source, self.explainer = CurrentSource(settings), Explainer(settings.ai)
        self.settings = RuntimeSettings(file, source=self.source, explainer=self.explainer)
        self.ledger = LedgerAccess(settings.ledger, lambda: self.settings.current.prices)
        self.notifier = Notifier(settings, self.ledger.engine, read_wish=owners.read_wish)
        self.results, self.events = ResultStore(), EventFeed()
        pipeline = Pipeline(
            Components(
                source=self.source,
                owners=owners,
                explainer=self.explainer,
                publisher=ResultPublisher(self.results, self.events),
                ledger=self.ledger,
                notifier=self.notifier,
            )
        )
        self.scheduler = CycleScheduler(pipeline, self.settings.begin_cycle)
        dependencies = ApiDependencies(
            results=self.results,
            events=self.events,
            cycles=self.scheduler,
            settings=self.settings,
            source=self.source,
            ledger=self.ledger,
            deliveries=self.notifier,
            model_calls=self.explainer.tally,
        )
        self.api = build_api(dependencies, lifespan=self._live)

    @asynccontextmanager
    async def _live(self, _: FastAPI) -> AsyncIterator[None]:
        self.events.open()
        await run_in_threadpool(len, "")  # loads what threads need, so that the first request does not wait for it
        self.notifier.start()
        self.scheduler.start()
        watch = asyncio.create_task(self._watch_files())
        try:
            yield
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch
            await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        self.scheduler.stop(timeout_seconds=CYCLE_GRACE_SECONDS)
        self.notifier.stop(NOTIFIER_GRACE_SECONDS)
        self.ledger.close()

    async def _watch_files(self) -> None:
        """A changed file takes effect at once, not at the end of an interval of minutes."""
        while True:
            await asyncio.sleep(RELOAD_SECONDS)
            if await asyncio.to_thread(self.settings.reload):
                self.scheduler.request_cycle()

    def interrupt(self) -> None:
        """Close all connections to other systems: whatever waits for them returns. May be called from any thread."""
        self.explainer.interrupt()
        self.source.close()


class _Server(uvicorn.Server):
    """Leaves signals to `_serve`, which has to act on them first."""

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
    """Serve until SIGTERM or SIGINT. Raises ConfigurationError for what a person can fix.

    `owners` are used instead of the API server. `prepare` is called with the analyzer before it starts, `announce`
    with the URL it listens on.
    """
    limit_malloc_arenas()
    listening = open_socket(file.settings.server)
    analyzer = Analyzer(file, owners=owners or open_owners(file.settings.kubernetes, os.environ))
    prepare(analyzer)
    _redirect_uvicorn_logs()
    server = _Server(configure_server(analyzer.api))
    host, port = listening.getsockname()[:2]
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    log.info("analyzer_started", address=url)
    announce(url)
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(_serve(analyzer, server, listening))
    log.info("analyzer_stopped")
    return 0


def _redirect_uvicorn_logs() -> None:
    """Into our own log and its format; only warnings and errors."""
    logger = logging.getLogger("uvicorn")
    logger.parent = logging.getLogger(ROOT)
    logger.setLevel(logging.WARNING)


async def _serve(analyzer: Analyzer, server: uvicorn.Server, listening: socket.socket) -> None:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        server.force_exit = server.should_exit  # the second signal waits for nothing
        server.should_exit = True
        analyzer.events.close()
        threading.Thread(target=analyzer.interrupt, name="interrupt", daemon=True).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    await server.serve(sockets=[listening])


def exit_without_threads() -> None:
    """End the program although a query hangs in a thread the interpreter would wait for. The last call of all."""
    deadline = time.monotonic() + THREADS_GRACE_SECONDS
    left = [thread for thread in threading.enumerate() if thread is not threading.main_thread() and not thread.daemon]
    for thread in left:
        thread.join(max(0.0, deadline - time.monotonic()))
    left = [thread for thread in left if thread.is_alive()]
    if left:
        log.warning("threads_abandoned", threads=",".join(thread.name for thread in left))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
