"""`gpusteward serve` as a process.

with running_serve(folder, prometheus_url=engine.url) as server: server.get("/results")
"""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.analyzer.api.server import Client
from tests.waiting import wait_until

COMMAND = (sys.executable, "-m", "gpusteward.cli.main", "serve")


@dataclass
class RunningServe(Client):
    """The command as a process."""

    process: subprocess.Popen[str] = field(repr=False)
    log: Path = field(repr=False)

    def wait_for(self, condition: Callable[["RunningServe"], bool], seconds: float = 60) -> None:
        def is_so() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            try:
                return condition(self)
            except OSError:  # not listening yet
                return False

        wait_until(is_so, seconds, self.log.read_text)

    def has_address(self) -> bool:
        """Whether its log has the listen address; from then on requests go there."""
        found = re.search(r"analyzer_started.*?(http://127\.0\.0\.1:\d+)", self.log.read_text())
        self.url = found[1] if found else ""
        return bool(found)

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
    """`gpusteward serve` in its own folder, on a free port."""
    log = folder / "serve.log"
    engine = [f"--prometheus-url={prometheus_url}"] if prometheus_url else []
    command = [*COMMAND, "--address=127.0.0.1:0", *engine, *flags]
    with log.open("w") as out:
        environment = {"XDG_DATA_HOME": str(folder), **(env or {})}  # the ledger is in the folder too
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out, text=True, env=environment)
        server = RunningServe("", process, log)
        try:
            server.wait_for(RunningServe.has_address, 60)  # a machine that is busy with other tests starts it slowly
            server.wait_for(lambda it: it.get("/health").status == 200)
            yield server
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(20)
