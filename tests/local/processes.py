"""`gpusteward COMMAND` as a process: its address, requests, Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any

ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")


class Program:
    """A running command."""

    def __init__(self, process: subprocess.Popen[str], stderr: IO[str] | int | None = None) -> None:
        self.process = process
        self.url = ""
        name = getattr(stderr, "name", None)
        self._log = Path(name) if isinstance(name, str) else None  # a pipe has a number for a name

    def describe_exit(self) -> str:
        """The exit code, and what it wrote to its log file."""
        return f"it has exited with {self.process.poll()}: {self._log.read_text() if self._log else 'no log file'}"

    def wait_for_address(self, seconds: float) -> str:
        """The address that it prints on standard output."""
        deadline = time.monotonic() + seconds
        assert self.process.stdout is not None
        while time.monotonic() < deadline:
            line = self.process.stdout.readline()
            assert line or self.process.poll() is None, self.describe_exit()
            if found := ADDRESS.search(line):
                self.url = found[0]
                return self.url
        raise AssertionError(f"no address after {seconds} s")

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=10) as response:
            return json.load(response)

    def wait_for(self, path: str, seconds: float) -> Any:
        """Until the list at the path has items."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                found = self.get(path)
                if found.get("items"):
                    return found
            except (urllib.error.URLError, ConnectionError):
                pass
            assert self.process.poll() is None, self.describe_exit()
            assert time.monotonic() < deadline, f"{path} has no items after {seconds} s"
            time.sleep(0.2)

    def interrupt(self, seconds: float = 15) -> int:
        os.killpg(self.process.pid, signal.SIGINT)  # to the whole group, as a terminal does
        return self.process.wait(seconds)


def running(
    *words: str, env: Mapping[str, str], stderr: IO[str] | int | None = None
) -> AbstractContextManager[Program]:
    """`gpusteward WORDS`."""
    return running_command([sys.executable, "-m", "gpusteward.cli.main", *words], env=env, stderr=stderr)


@contextmanager
def running_command(
    command: Sequence[str], *, env: Mapping[str, str], stderr: IO[str] | int | None = None
) -> Iterator[Program]:
    with subprocess.Popen(
        command, env=dict(env), stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True
    ) as process:
        try:
            yield Program(process, stderr)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
