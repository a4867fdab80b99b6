"""Runs the process under test: starts it, asks it, kills it."""

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.kubernetes.cluster import ROOT

MODULE = "tests.analyzer.reclaim.chaos.analyzer_process"
ANSWER_SECONDS = 240.0


class Replica:
    """One analyzer; a new process after each death."""

    def __init__(self, name: str, folder: Path, config: dict[str, Any]) -> None:
        self.name, self.starts = name, 0
        self._folder, self._config = folder, config
        self._process: subprocess.Popen[bytes] | None = None
        self._spare = self._open()  # loads its modules while another one works

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, *, now: float, holder: str) -> None:
        self._process, self._spare = self._spare, self._open()
        self.starts += 1
        self.send({**self._config, "now": now, "holder": holder})
        if self.read() is None:
            raise RuntimeError((self._folder / f"{self.name}.log").read_text()[-3000:])

    def _open(self) -> "subprocess.Popen[bytes]":
        with (self._folder / f"{self.name}.log").open("ab") as log:
            return subprocess.Popen(
                ["setpriv", "--pdeathsig=KILL", sys.executable, "-m", MODULE],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def send(self, order: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            return  # it is dead: `read` says so

    def read(self) -> dict[str, Any] | None:
        """The next answer; None if the process has ended."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            end = time.monotonic() + ANSWER_SECONDS
            while not line.endswith(b"\n"):
                assert selector.select(max(0.0, end - time.monotonic())), f"{self.name} does not answer"
                part = os.read(self._process.stdout.fileno(), 65536)
                if not part:
                    self._process.wait(10)
                    return None
                line += part
        return dict(json.loads(line))

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def stop(self) -> None:
        """The running process; `close` ends all."""
        if self._process is not None:
            _end(self._process)

    def close(self) -> None:
        self.stop()
        _end(self._spare)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait(10)
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
