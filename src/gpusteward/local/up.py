"""`gpusteward up`: this machine's GPUs, who uses them and how well, without Kubernetes and without Prometheus."""

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from gpusteward.agent.nvml import SIMULATE_ADVICE, Nvml
from gpusteward.analyzer.serve import run_analyzer
from gpusteward.analyzer.settings.file import SettingsFile
from gpusteward.analyzer.settings.flags import Flags
from gpusteward.core.errors import SourceError
from gpusteward.local.children import run_child
from gpusteward.logs import Log, configure_logs

log = Log(__name__)

KUBELET_SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
AGENT_PORT = 9400
AGENT_SECONDS = 10.0
DEMO = "gpusteward demo shows all of it on GPUs that do not exist"
OWN_SETTINGS = {"kubernetes.owners": "never", "scheduler.interval": "30"}
"""Where nobody has chosen otherwise: one machine is judged often, and has nobody to ask for owners."""


def run_up(flags: Flags, environ: Mapping[str, str] = os.environ) -> int:
    """Serve until a signal ends it. Raises SourceError without a GPU to look at, ConfigurationError for the rest."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until the analyzer listens to signals itself
    count_gpus()
    port = find_port()
    agent_url = f"http://127.0.0.1:{port}"
    file = SettingsFile(_complete(flags, f"{agent_url}/metrics"), environ, directory=Path.cwd())
    configure_logs(level=file.settings.logging.level, as_json=file.settings.logging.as_json)
    holders = "claims" if is_within_reach(KUBELET_SOCKET) else "processes"
    with run_child("agent", f"--address=127.0.0.1:{port}", f"--holders={holders}", "--log-level=warning") as agent:
        wait_until_listening(port, agent)
        _serve(file, agent, announce=partial(_announce, agent_url=agent_url))
        return 0 if agent.poll() is None else 1


def _serve(file: SettingsFile, agent: subprocess.Popen[bytes], *, announce: Callable[[str], None]) -> None:
    """Until a signal, or until the agent ends by itself."""
    is_over = threading.Event()
    try:
        run_analyzer(file, prepare=lambda _: _watch(agent, is_over), announce=announce)
    except KeyboardInterrupt:
        if agent.poll() is None:
            raise
    finally:
        is_over.set()


def count_gpus() -> int:
    """Raises SourceError, with what is missing, when there is no GPU that answers."""
    nvml = Nvml(os.uname().nodename)
    try:
        count = len(nvml.read(frozenset()).readings)
    except SourceError as error:
        raise SourceError(f"{str(error).removesuffix(SIMULATE_ADVICE)}. Without a GPU, {DEMO}") from error
    finally:
        nvml.release()
    if not count:
        raise SourceError(f"the NVIDIA driver knows no GPU on this machine; {DEMO}")
    return count


def is_within_reach(path: Path) -> bool:
    """Whether it is there, as far as this user may look: a kubelet's folder is often closed to all but root."""
    try:
        return path.exists()
    except PermissionError:
        return False


def find_port() -> int:
    """The agent's usual port, so that `gpusteward ps` finds it; another one where that is taken."""
    for port in (AGENT_PORT, 0):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)) as listening:
            return int(listening.getsockname()[1])
    raise SourceError("no port of this machine is free for the agent")


def _watch(agent: subprocess.Popen[bytes], is_over: threading.Event) -> None:
    """An agent that ends by itself ends the whole: numbers that only grow old help nobody."""

    def wait() -> None:
        code = agent.wait()
        if is_over.is_set():
            return
        log.error("agent_ended", code=code, consequence="gpusteward up ends with it")
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="agent", daemon=True).start()


def wait_until_listening(port: int, agent: subprocess.Popen[bytes]) -> None:
    """Raises SourceError when the agent ends instead; one that is slow is found later."""
    deadline = time.monotonic() + AGENT_SECONDS
    while time.monotonic() < deadline:
        if agent.poll() is not None:
            raise SourceError(f"the agent ended at once with {agent.returncode}; what it said stands above")
        with socket.socket() as knocking:
            if knocking.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)


def _complete(flags: Flags, target: str) -> Flags:
    """What makes it local, before what a person wrote: the later one counts."""
    own = {"prometheus.url": "", "scrape.targets": f'["{target}"]', **OWN_SETTINGS}
    return replace(flags, values=(*((path, text, "gpusteward up") for path, text in own.items()), *flags.values))


def _announce(url: str, *, agent_url: str) -> None:
    print(
        f"{url} shows who uses the GPUs of this machine; Ctrl-C ends it\n"
        f"In another terminal: export GPUSTEWARD_SERVER={url} GPUSTEWARD_AGENT={agent_url}\n"
        "and then: gpusteward top, gpusteward ps, gpusteward report --since 7d",
        flush=True,
    )
