"""Runs the analyzer as a program: the listening socket, the HTTP server, signals, and the end of the process."""

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from gpusteward.analyzer.app import Analyzer
from gpusteward.analyzer.ledger.database.leadership import FileOwner
from gpusteward.analyzer.reclaim.build import find_own_namespace, open_cluster
from gpusteward.analyzer.server.http_server import IDLE_SECONDS, LimitedServer
from gpusteward.analyzer.server.listen_socket import open_socket
from gpusteward.analyzer.settings.file import SettingsFile
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.owners.cluster_owners import ClusterOwners, open_api, open_offered_gpus, open_owners
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.http_server.web_config import WebConfig, WebConfigFile
from gpusteward.logs import ROOT, Log
from gpusteward.process_memory import limit_malloc_arenas

log = Log(__name__)

REQUESTS_GRACE_SECONDS = 2
OWNER_POLL_SECONDS = 1.0
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run_analyzer(
    file: SettingsFile,
    *,
    listening: socket.socket | None = None,
    owners: ClusterOwners | None = None,
    prepare: Callable[[Analyzer], None] = lambda _: None,
    announce: Callable[[str], None] = lambda _: None,
) -> int:
    """Serve until SIGTERM or SIGINT. Raises ConfigurationError for what the user can fix.

    `listening` is used instead of a new socket, `owners` instead of the API server. `prepare` is called with the
    analyzer before it starts, `announce` with the URL it listens on.
    """
    limit_malloc_arenas()
    raise_file_limit()
    gc.freeze()  # modules live until the end
    require_kubernetes(file.settings, os.environ)
    listening = listening or open_socket(file.settings.server)
    with FileOwner(file.settings.ledger) as owner:
        if not owner.take() and not _wait_for_ledger(owner, file, listening):
            return 0
        return _run(file, listening, owners, prepare, announce)


def _run(
    file: SettingsFile,
    listening: socket.socket,
    owners: ClusterOwners | None,
    prepare: Callable[[Analyzer], None],
    announce: Callable[[str], None],
) -> int:
    analyzer = Analyzer(
        file,
        owners=owners or open_owners(file.settings.kubernetes, os.environ),
        cluster=open_cluster(file.settings, os.environ),
        own_namespace=find_own_namespace(file.settings, os.environ),
        offered=open_offered_gpus(file.settings.kubernetes, os.environ),
    )
    prepare(analyzer)
    _redirect_library_logs()
    server = _Server(configure_server(analyzer.api), web=analyzer.web)
    host, port = listening.getsockname()[:2]
    scheme = "https" if analyzer.web().context else "http"
    url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def report_start() -> None:
        log.info("analyzer_started", address=url, ledger=analyzer.ledger.location)
        announce(url)

    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(_serve(analyzer, server, listening, report_start))
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # it is ending already
    log.info("analyzer_stopped")
    return 0


def _wait_for_ledger(owner: FileOwner, file: SettingsFile, listening: socket.socket) -> bool:
    """Until another analyzer has left the SQLite file; False: this one was told to stop. Meanwhile it is alive and not
    ready, and opens nothing."""
    log.warning("ledger_in_use", lock=owner.path, consequence="waiting until the other analyzer has ended")
    text = f"waiting: another analyzer has the ledger ({owner.path})\n"
    path = file.settings.server.web_config_file
    web = WebConfigFile(path) if path else None
    config = configure_server(Starlette(routes=_waiting_routes(text)))
    server = _Server(config, web=lambda: web.config if web else WebConfig())
    is_owner = False

    async def wait() -> None:
        nonlocal is_owner
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, stopped.set)
        serving = asyncio.create_task(server.serve(sockets=[listening.dup()]))
        while not stopped.is_set() and not (is_owner := owner.take()):
            with suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), OWNER_POLL_SECONDS)
        server.should_exit = True
        await serving

    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(wait())
    if not is_owner:
        log.info("analyzer_stopped")
    return is_owner


def _waiting_routes(text: str) -> list[Route]:
    headers = {"Cache-Control": "no-store"}

    async def live(_: Request) -> Response:
        return PlainTextResponse(text, HTTPStatus.OK, headers)

    async def refuse(_: Request) -> Response:
        return PlainTextResponse(text, HTTPStatus.SERVICE_UNAVAILABLE, headers)

    return [Route("/livez", live), Route("/healthz", live), Route("/{path:path}", refuse)]


def require_kubernetes(settings: Settings, environ: Mapping[str, str]) -> None:
    """Raises ConfigurationError if GPUs shall be given back and there is no API server. One that does not respond for a
    while is no reason to stop reading: nothing is done meanwhile."""
    if settings.reclaim.mode != "enforce":
        return
    try:
        open_api(settings.kubernetes, environ)
    except SourceError as error:
        raise ConfigurationError(
            f"reclaim.mode is enforce, but Kubernetes cannot be reached: {error}; run the analyzer in "
            "the cluster, set kubernetes.api_url, or set reclaim.mode to observe"
        ) from error


def raise_file_limit() -> None:
    """Allow as many open files as the system permits: a connection stays open for each target, up to
    `ScrapeSettings.target_limit`, and many systems allow only 1,024 at first."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _redirect_library_logs() -> None:
    """Into our own log and its format; only warnings and errors."""
    for name in ("uvicorn", "mcp"):
        logger = logging.getLogger(name)
        logger.parent = logging.getLogger(ROOT)
        logger.setLevel(logging.WARNING)


class _Server(LimitedServer):
    """Leaves signals to `_serve`, which has to act on them first."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(
    analyzer: Analyzer, server: uvicorn.Server, listening: socket.socket, report_start: Callable[[], None]
) -> None:
    """Whoever sees the report may send a signal at once."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        server.force_exit = server.should_exit  # the second signal waits for nothing
        server.should_exit = True
        analyzer.events.close()
        threading.Thread(target=analyzer.interrupt, name="interrupt", daemon=True).start()

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop)
    report_start()
    await server.serve(sockets=[listening])


def configure_server(api: Starlette) -> uvicorn.Config:
    return uvicorn.Config(
        api,
        log_config=None,
        access_log=False,
        proxy_headers=False,  # no header may replace the address of the peer
        server_header=False,
        ws="none",
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=REQUESTS_GRACE_SECONDS,
    )
