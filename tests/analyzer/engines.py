"""Real engines as processes on free loopback ports, with given samples.

with running_prometheus(folder, samples) as engine: ...   # engine.url
"""

import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.agent.test_agent_process import free_port
from tests.analyzer.remote_write import Sample, write_samples
from tests.conftest import give_up

START_SECONDS = 30.0


@dataclass
class RunningEngine:
    """The URL and the process of an engine that is ready."""

    url: str
    process: subprocess.Popen
    command: Sequence[str]

    def write(self, samples: Iterable[Sample]) -> None:
        """To a Prometheus."""
        write_samples(f"{self.url}/api/v1/write", samples)

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(20)

    def start_again(self) -> None:
        self.stop()
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def find_program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        give_up(f"{name} is not installed; `make components` installs it")
    return str(path)


@contextmanager
def running_prometheus(
    folder: Path,
    samples: Iterable[Sample] = (),
    *,
    flags: Sequence[str] = (),
    rules: Path | None = None,
    external_labels: str = "{}",
) -> Iterator[RunningEngine]:
    """Prometheus with the samples written to it; it scrapes nothing."""
    program = find_program("prometheus")
    config = folder / "prometheus.yml"
    settings = f"global: {{evaluation_interval: 1s, external_labels: {external_labels}}}\n"
    config.write_text(settings)
    address = f"127.0.0.1:{free_port()}"
    command = [
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=100y",
        "--storage.tsdb.min-block-duration=10y",  # samples of any time are accepted, and none are compacted
        "--web.enable-remote-write-receiver",
        f"--web.listen-address={address}",
        "--log.level=error",
        *flags,
    ]
    with run_engine(command, f"http://{address}", "/-/ready") as engine:
        engine.write(samples)
        if rules:  # are evaluated once all samples are there
            config.write_text(f"{settings}rule_files: [{rules}]\n")
            engine.process.send_signal(signal.SIGHUP)
        yield engine


@contextmanager
def running_victoria(
    folder: Path, samples: Iterable[Sample] = (), *, flags: Sequence[str] = ()
) -> Iterator[RunningEngine]:
    """VictoriaMetrics with the samples imported."""
    program = find_program("victoria-metrics")
    address = f"127.0.0.1:{free_port()}"
    command = [
        program,
        f"-storageDataPath={folder}/victoria",
        f"-httpListenAddr={address}",
        "-retentionPeriod=100y",
        "-loggerLevel=ERROR",
        *flags,
    ]
    with run_engine(command, f"http://{address}", "/health") as engine:
        import_samples(engine.url, samples)
        yield engine


@contextmanager
def running_alertmanager(folder: Path, *, webhook: str = "http://127.0.0.1:9/") -> Iterator[RunningEngine]:
    """Alertmanager that forwards everything to a webhook at once."""
    program = find_program("prometheus-alertmanager")
    config = folder / "alertmanager.yml"
    config.write_text(
        "route: {receiver: hook, group_by: [alertname], group_wait: 10ms, group_interval: 100ms}\n"
        f"receivers: [{{name: hook, webhook_configs: [{{url: '{webhook}'}}]}}]\n"
    )
    address = f"127.0.0.1:{free_port()}"
    command = [
        program,
        f"--config.file={config}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
        "--log.level=error",
    ]
    with run_engine(command, f"http://{address}", "/-/ready") as engine:
        yield engine


def import_samples(url: str, samples: Iterable[Sample]) -> None:
    """To a VictoriaMetrics, which shows them at once."""
    write_samples(f"{url}/api/v1/write", samples)
    with urllib.request.urlopen(f"{url}/internal/force_flush", timeout=60) as response:
        assert response.status == 200


@contextmanager
def run_engine(command: Sequence[str], url: str, ready_path: str) -> Iterator[RunningEngine]:
    """A program that serves HTTP, once it is ready."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    engine = RunningEngine(url, process, command)
    try:
        wait_until_ready(engine, ready_path)
        yield engine
    finally:
        engine.stop()


def wait_until_ready(engine: RunningEngine, path: str = "/-/ready") -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert engine.process.poll() is None, f"{engine.command[0]} has ended"
        try:
            with urllib.request.urlopen(engine.url + path, timeout=5) as response:
                if response.status == 200:
                    return
        except urllib.error.HTTPError as error:  # 503 until it has read its blocks
            error.close()
            time.sleep(0.05)
        except OSError:
            time.sleep(0.05)
    pytest.fail(f"{engine.command[0]} is not ready after {START_SECONDS} s")
