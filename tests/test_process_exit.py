"""Programs end with their exit code although threads are running; Python's own shutdown would abort them."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

COMMAND = (sys.executable, "-m", "gpusteward.cli.main")
ROUNDS = 4
LONGEST_END_SECONDS = 8.0

PROGRAM = """
import sys, threading, time
from gpusteward import process_exit

process_exit.THREADS_GRACE_SECONDS = 0.1  # these threads never end

def write():
    while True:
        sys.stderr.write("a line of the log\\n")

def hash_passwords():
    import bcrypt  # written in Rust, which aborts when its thread is ended
    while True:
        bcrypt.checkpw(b"password", bcrypt.hashpw(b"password", bcrypt.gensalt(4)))

for _ in range(4):
    threading.Thread(target={"write": write, "hash": hash_passwords}[sys.argv[1]], daemon=True).start()
time.sleep(0.2)
if sys.argv[2] == "protected":
    process_exit.exit_without_threads(3)
sys.exit(3)
"""


def run_program(*words: str) -> int:
    environ = {"PATH": os.environ["PATH"]}  # without PYTHONUNBUFFERED: a buffered stream has a lock
    command = [sys.executable, "-c", PROGRAM, *words]
    return subprocess.run(command, env=environ, stderr=subprocess.DEVNULL, check=False, timeout=60).returncode


@pytest.mark.parametrize("work", ["write", "hash"])
def test_running_threads_do_not_abort_the_process(work: str):
    assert [run_program(work, "protected") for _ in range(3)] == [3, 3, 3]


def test_without_that_the_interpreter_aborts():
    assert -signal.SIGABRT in (run_program("write", "unprotected") for _ in range(5))


@contextmanager
def under_load(url: str, paths: tuple[str, ...]) -> Iterator[None]:
    """Clients that send requests until the end."""
    is_over = threading.Event()

    def send() -> None:
        while not is_over.is_set():
            for path in paths:
                with (
                    suppress(OSError, ValueError, HTTPException),
                    urllib.request.urlopen(url + path, timeout=5) as response,
                ):
                    response.read()

    clients = [threading.Thread(target=send) for _ in range(3)]
    for client in clients:
        client.start()
    try:
        yield
    finally:
        is_over.set()
        for client in clients:
            client.join(20)


def end_under_load(words: tuple[str, ...], paths: tuple[str, ...], folder: Path, *, delay: float) -> tuple[int, str]:
    """The exit code and the log of a program that gets SIGTERM while it is working."""
    log = folder / "program.log"
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    with log.open("w") as out:
        process = subprocess.Popen([*COMMAND, *words], cwd=folder, env=environ, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + 60
        while not (found := re.search(r"_started .*?(http://\S+:\d+)", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        with under_load(found[1], paths):
            time.sleep(delay)  # somewhere in a cycle
            started = time.monotonic()
            process.terminate()
            code = process.wait(20)
            assert time.monotonic() - started < LONGEST_END_SECONDS
        return code, log.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("number", range(ROUNDS))
def test_the_agent_ends_with_0_under_load(tmp_path: Path, number: int):
    words = ("agent", "--source=simulated", "--address=127.0.0.1:0", "--interval=0.5", "--log-level=debug")
    code, log = end_under_load(words, ("/metrics", "/snapshot", "/livez"), tmp_path, delay=0.2 * number)
    assert code == 0, log


@pytest.mark.parametrize("number", range(ROUNDS))
def test_the_analyzer_ends_with_0_under_load(tmp_path: Path, number: int):
    target = "scrape.targets=127.0.0.1:9"
    words = ("serve", "--address=127.0.0.1:0", "--interval=1", "--log-level=debug", "--set", target)
    paths = ("/metrics", "/api/v1/health", "/api/v1/reports?since=1h", "/results")
    code, log = end_under_load(words, paths, tmp_path, delay=0.3 * number)
    assert code == 0, log
