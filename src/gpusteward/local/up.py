"""`gpusteward up`: an agent on the GPUs of this machine, and an analyzer that scrapes it."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from gpusteward.agent.nvml import Nvml
from gpusteward.analyzer.server.serve import run_analyzer
from gpusteward.analyzer.settings.file import SettingsFile
from gpusteward.analyzer.settings.flags import Flags, refuse_settings
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Language, Message
from gpusteward.local.child_process import run_child
from gpusteward.logs import Log, configure_logs
from gpusteward.messages.errors.nvml_errors import NO_ADVICE

UP_STARTED = Message(
    "GPUs of this machine at {url}; stop it with Ctrl-C.\n"
    "In another terminal: export GPUSTEWARD_SERVER={url} GPUSTEWARD_AGENT={agent_url}\n"
    "then: gpusteward top, gpusteward ps, gpusteward report --since 7d",
    "本机 GPU 的使用情况：{url}；按 Ctrl-C 停止。\n"
    "在另一个终端中执行：export GPUSTEWARD_SERVER={url} GPUSTEWARD_AGENT={agent_url}\n"
    "然后执行：gpusteward top, gpusteward ps, gpusteward report --since 7d",
)

log = Log(__name__)

KUBELET_SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
AGENT_PORT = 9400
START_SECONDS = 10.0
FIXED = ("prometheus.url", "scrape.targets")
DEFAULTS = {"kubernetes.owners": "never", "scheduler.interval": "30"}
"""Settings of one machine, unless the user sets them: short cycles, and no API server to query for owners."""


def run_up(flags: Flags, environ: Mapping[str, str], *, language: Language) -> int:
    """Serve until a signal stops it. Raises SourceError without a usable GPU, ConfigurationError."""
    refuse_settings(flags, FIXED, command="up")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until the analyzer handles signals itself
    _check_gpus()
    port = _find_port()
    agent_url = f"http://127.0.0.1:{port}"
    file = SettingsFile(_add_settings(flags, f"{agent_url}/metrics"), environ, directory=Path.cwd())
    configure_logs(level=file.settings.logging.level, as_json=file.settings.logging.as_json)
    holders = "claims" if is_accessible(KUBELET_SOCKET) else "processes"
    words = [sys.executable, "-m", "gpusteward.cli.main", "agent", f"--address=127.0.0.1:{port}"]
    words += [f"--holders={holders}", "--all-series", "--log-level=warning"]
    with run_child(words, process_group=0) as agent:  # of its own: Ctrl-C in a terminal does not reach it
        _wait_until_listening(port, agent)
        is_stopping = threading.Event()
        try:
            run_analyzer(
                file,
                prepare=lambda _: _watch(agent, is_stopping),
                announce=lambda url: print(UP_STARTED.text(language, url=url, agent_url=agent_url), flush=True),
            )
        except KeyboardInterrupt:
            if agent.poll() is None:
                raise  # the agent has not exited
        finally:
            is_stopping.set()
        return 0 if agent.poll() is None else 1


def _check_gpus() -> None:
    """Raises SourceError if the driver or a GPU is missing."""
    nvml = Nvml(os.uname().nodename)
    try:
        count = sum(not each.lost for each in nvml.read(frozenset()).readings)
    except SourceError as error:
        own = SourceError(error.message, **error.fields | {"advice": NO_ADVICE})  # `up` has other advice
        raise SourceError(f"{own}. Without a GPU, run gpusteward demo: it simulates a cluster") from error
    finally:
        nvml.release()
    if not count:
        raise SourceError("the NVIDIA driver finds no GPU on this machine; gpusteward demo simulates a cluster")


def is_accessible(path: Path) -> bool:
    """Whether it exists, as far as this user can see: the folder of a kubelet is often closed to all but root."""
    try:
        return path.exists()
    except PermissionError:
        return False


def _find_port() -> int:
    """The agent's default port, which `gpusteward ps` uses; another one if that is taken."""
    for port in (AGENT_PORT, 0):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)) as listener:
            return int(listener.getsockname()[1])
    raise SourceError("no free port for the agent")


def _watch(agent: subprocess.Popen[bytes], is_stopping: threading.Event) -> None:
    """If the agent exits, stop the analyzer too: its data would only get older."""

    def wait() -> None:
        code = agent.wait()
        if is_stopping.is_set():
            return
        log.error("agent_exited", code=code, consequence="gpusteward up stops")
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="agent", daemon=True).start()


def _wait_until_listening(port: int, agent: subprocess.Popen[bytes]) -> None:
    """Raises SourceError if the agent exits. If it is only slow, the analyzer finds it later."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if agent.poll() is not None:
            raise SourceError(f"the agent exited at once with code {agent.returncode}; its error is printed above")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)


def _add_settings(flags: Flags, target: str) -> Flags:
    """Before those of the user, which override them."""
    own = {"prometheus.url": "", "scrape.targets": f'["{target}"]', **DEFAULTS}
    return replace(flags, values=(*((path, text, "gpusteward up") for path, text in own.items()), *flags.values))
