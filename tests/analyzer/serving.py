"""`gpusteward serve` as a process, and the same application in this process on a hand-made result.

with running_serve(folder, prometheus_url=engine.url) as server: server.get("/results")
with serving_api(make_result(...)) as api: api.get("/api/v1/workloads")
"""

import asyncio
import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from email.message import Message
from pathlib import Path
from typing import Any

import uvicorn

from gpusteward.analyzer.api.build import build_api
from gpusteward.analyzer.api.dependencies import Serving
from gpusteward.analyzer.api.event_feed import EventFeed
from gpusteward.analyzer.api.http.concurrency_limits import Places
from gpusteward.analyzer.api.http.roles import Roles
from gpusteward.analyzer.api.publishing import publish
from gpusteward.analyzer.api.result_store import Board
from gpusteward.analyzer.explain.answers import Opinion
from gpusteward.analyzer.explain.caution import restrain_all, weigh_all
from gpusteward.analyzer.explain.tallies import Tally
from gpusteward.analyzer.judge.history import Memory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.workloads import judge_workloads
from gpusteward.analyzer.listen_socket import configure_server, open_socket
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import ServerSettings, Settings
from gpusteward.analyzer.sources.pod_processes import Pod, Running, RunningProcess
from gpusteward.analyzer.sources.usage_source import Chart
from gpusteward.analyzer.tables import UsageTable
from gpusteward.analyzer.worker import Account
from gpusteward.core.usages import Measure
from tests.agent.test_agent_process import free_port
from tests.analyzer.reports.example_reports import example_report

COMMAND = (sys.executable, "-m", "gpusteward.cli.main", "serve")


@dataclass(frozen=True)
class Answer:
    """One HTTP answer, read to its end."""

    status: int
    headers: Message
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Client:
    """Asks one server; refusals are answers too."""

    url: str

    def get(self, path: str, *, method: str = "GET", token: str = "", **headers: str) -> Answer:
        request = urllib.request.Request(self.url + path, method=method)
        for name, value in headers.items():
            request.add_header(name.replace("_", "-"), value)
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return Answer(answer.status, answer.headers, answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.headers, error.read())

    def post(self, path: str, *, token: str = "", **headers: str) -> Answer:
        return self.get(path, method="POST", token=token, **headers)


@dataclass
class RunningServe(Client):
    """The command as a process."""

    process: subprocess.Popen[str] = field(repr=False)
    log: Path = field(repr=False)

    def wait_for(self, condition: Callable[["RunningServe"], bool], seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while True:
            assert self.process.poll() is None, self.log.read_text()
            try:
                if condition(self):
                    return
            except OSError:  # does not listen yet
                pass
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)

    def stop(self) -> float:
        """Terminate it; how many seconds that took."""
        started = time.monotonic()
        self.process.terminate()
        self.process.wait(20)
        return time.monotonic() - started


@contextmanager
def running_serve(
    folder: Path, *flags: str, prometheus_url: str = "", env: Mapping[str, str] | None = None
) -> Iterator[RunningServe]:
    """`gpusteward serve` in a folder of its own, on a free port."""
    log = folder / "serve.log"
    address = f"127.0.0.1:{free_port()}"
    engine = [f"--prometheus-url={prometheus_url}"] if prometheus_url else []
    command = [*COMMAND, f"--address={address}", *engine, *flags]
    with log.open("w") as out:
        own = {"XDG_DATA_HOME": str(folder), **(env or {})}  # its books too are in the folder
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out, text=True, env=own)
        server = RunningServe(f"http://{address}", process, log)
        try:
            server.wait_for(lambda it: it.get("/health").status == 200)
            yield server
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(20)


def make_result(
    table: UsageTable,
    *,
    settings: Settings | None = None,
    number: int = 1,
    opinions: Mapping[int, Opinion] | None = None,
) -> Result:
    """What a cycle would make of a table."""
    settings = settings or Settings()
    verdicts, _ = judge(table, settings.rules, Memory(), now=table.at)
    cautions = weigh_all(verdicts, opinions or {}, threshold=settings.ai.threshold)
    verdicts = restrain_all(verdicts, cautions)
    workloads = judge_workloads(verdicts, settings.rules)
    return Result(number, table.at, 0.25, settings, verdicts, workloads, opinions or {}, {}, cautions)


@dataclass
class Api(Client):
    """The application in this process, and the parts behind it."""

    serving: Serving
    cycles_asked: list[bool | None]

    def post_result(self, result: Result) -> None:
        publish(self.serving.board, result)


def run_processes(pods: Collection[Pod], _: float) -> Running:
    """Each pod runs one process; of those called `server...` nobody tells."""
    told = [pod for pod in pods if not pod.name.startswith("server")]
    return Running(
        [
            RunningProcess(pod, "main", "n1", "0", "GPU-a", "", "", 4000 + number, "python", 8.0 * 2**30, 0.25)
            for number, pod in enumerate(told)
        ],
        frozenset(told),
    )


def make_serving(result: Result | None, *, settings: Settings | None = None, **parts: Any) -> Serving:
    board, account = Board(), Account()
    if result is not None:
        publish(board, result)
        account.finished = 1
        account.last_ended_at = result.at
    current = [settings or (result.settings if result else Settings())]
    roles = Roles(current[0].server.tokens_file, current[0].server.tokens)

    def change(values: Mapping[str, object]) -> Settings:
        raise AssertionError(f"nobody should change {values}")

    serving = Serving(
        board=board,
        events=EventFeed(),
        account=account,
        tally=Tally(failures=Counter()),
        settings=lambda: current[0],
        roles=lambda: roles,
        change_settings=change,
        ask_cycle=lambda _: None,
        describe_source=lambda: {"url": "http://engine", "engine": "Prometheus", "failures": {}},
        read_series=lambda allocation, at, _: Chart(allocation, {Measure.CORE: [(at - 60, 0.5), (at, 0.75)]}),
        read_processes=run_processes,
        chart_places=Places(),
        process_places=Places(work="processes"),
        count_queries=lambda: {"ok": 3, "failed": 0},
        count_reloads=lambda: {"ok": 0, "refused": 0},
        read_report=example_report,
    )
    return replace(serving, **parts)


@contextmanager
def serving_api(
    result: Result | None = None, *, settings: Settings | None = None, host: str = "127.0.0.1", **parts: Any
) -> Iterator[Api]:
    """The application behind uvicorn on a free port, its event loop in a thread."""
    asked: list[bool | None] = []
    parts.setdefault("ask_cycle", asked.append)
    serving = make_serving(result, settings=settings, **parts)
    listening = open_socket(ServerSettings(address=f"{host}:0"))
    server = uvicorn.Server(configure_server(build_api(serving)))

    async def serve() -> None:
        serving.events.open()
        await server.serve(sockets=[listening])

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        yield Api(f"http://{host}:{listening.getsockname()[1]}", serving, asked)
    finally:
        server.should_exit = True
        thread.join(20)
