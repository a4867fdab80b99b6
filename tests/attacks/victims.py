"""A program under attack: raw requests to it, and what they cost it."""

import os
import socket
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.agent.test_agent_process import running
from tests.analyzer.serve_process import running_serve
from tests.fakes import nvml_scenarios as nvml
from tests.fakes.nvml_library import environment

REQUEST_SECONDS = 60.0
"""Before these attacks were refused some took longer; then the test fails here."""
FREEZE_CPU_SECONDS = 2.0
"""How long a program may compute before it answers somebody else; before, these attacks took 10 to 47 seconds. 4,000
requests at once take 1.5. The limit of one second on a quiet machine is the bench's (`bench/attacks.py`)."""
FREEZE_SECONDS = 20.0
"""The same on a machine that is busy with other tests."""
NOWHERE = "http://127.0.0.1:9"
TOKENS = {role: f"{role}-0123456789abcdef" for role in ("viewer", "admin")}


@dataclass(frozen=True)
class Cost:
    """What a program used from the start of an attack until it answered /livez again."""

    cpu_seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class Answer:
    """A response, how long it took, and how long the program computed meanwhile, which no busy machine changes."""

    response: bytes
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Victim:
    """A process that listens on loopback."""

    url: str
    pid: int

    def send(self, sent: bytes) -> bytes:
        """Raw bytes on a connection of their own; everything that comes back until the server closes it."""
        where = urllib.parse.urlsplit(self.url)
        with socket.create_connection((where.hostname, where.port), timeout=REQUEST_SECONDS) as client:
            try:
                client.sendall(sent)
                return b"".join(iter(lambda: client.recv(65536), b""))
            except TimeoutError:
                raise
            except OSError:  # the server closed it before everything was sent
                return b""

    def get(self, path: str, *headers: str) -> bytes:
        """The response to a request with these lines of headers."""
        lines = (f"GET {path} HTTP/1.1", "Host: localhost", "Connection: close", *headers, "", "")
        return self.send("\r\n".join(lines).encode("latin-1"))

    def post(self, path: str, body: bytes, *headers: str) -> bytes:
        lines = (f"POST {path} HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Length: {len(body)}")
        return self.send("\r\n".join((*lines, *headers, "", "")).encode("latin-1") + body)

    def time(self, path: str) -> Answer:
        """A request, measured."""
        begun, before = time.monotonic(), self.read_cost()
        response = self.get(path)
        return Answer(response, time.monotonic() - begun, self.read_cost().cpu_seconds - before.cpu_seconds)

    @contextmanager
    def attacked(self, *, cpu_seconds: float, peak_bytes: int = 512 << 20) -> Iterator[None]:
        """Fails if what is done inside costs the program more. It must answer /livez afterwards."""
        assert status_of(self.get("/livez")) == 200
        before = self.read_cost()
        yield
        assert status_of(self.get("/livez")) == 200
        after = self.read_cost()
        assert after.cpu_seconds - before.cpu_seconds < cpu_seconds
        assert after.peak_bytes < peak_bytes

    def read_unsent(self) -> int:
        """Bytes of responses in the kernel that no client has taken: memory of the container beside the RSS."""
        local = f":{urllib.parse.urlsplit(self.url).port:04X}"
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return sum(int(row[4].partition(":")[0], 16) for row in rows if row[1].endswith(local))

    def read_cost(self) -> Cost:
        process = Path("/proc") / str(self.pid)
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        (peak,) = [line for line in (process / "status").read_text().splitlines() if line.startswith("VmHWM:")]
        ticks = int(fields[11]) + int(fields[12])  # utime and stime
        return Cost(ticks / os.sysconf("SC_CLK_TCK"), int(peak.split()[1]) * 1024)


def status_of(response: bytes) -> int:
    """0: the connection was closed without a response."""
    return int(response.split(b" ", 2)[1]) if response.startswith(b"HTTP/1.1 ") else 0


@contextmanager
def running_analyzer(folder: Path, *flags: str) -> Iterator[Victim]:
    """Its engine does not answer: cycles fail at once and cost next to nothing."""
    with running_serve(folder, *flags, prometheus_url=NOWHERE, env={"PATH": os.environ["PATH"]}) as server:
        yield Victim(server.url, server.process.pid)


@contextmanager
def running_guarded_analyzer(folder: Path) -> Iterator[Victim]:
    """An analyzer that asks for one of `TOKENS`."""
    tokens = folder / "tokens"
    tokens.write_text("".join(f"{role}: {token}\n" for role, token in TOKENS.items()))
    with running_analyzer(folder, f"--tokens-file={tokens}", "--set=server.anonymous_reads=never") as victim:
        yield victim


@contextmanager
def running_agent(folder: Path, *flags: str) -> Iterator[Victim]:
    nvml.a100x8().write(folder / "scenario")
    with running(*flags, env=environment(folder / "scenario")) as agent:
        yield Victim(agent.url, agent.process.pid)
