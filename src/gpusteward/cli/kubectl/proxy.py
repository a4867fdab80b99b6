"""The way to the API server: `kubectl proxy` on a Unix socket, for as long as the command runs.

kubectl knows kubeconfigs, client certificates, exec plugins, proxies and impersonation. Its proxy has the rights of the
user, so it listens on a socket in a folder that nobody else can open, never on a port of the machine. It removes the
Authorization header of what it forwards: a token for the server behind the API server needs a header of its own.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

from gpusteward.cli.json_access import Row, decode_object
from gpusteward.cli.output.terminal_text import clean
from gpusteward.core.errors import ConfigurationError
from gpusteward.local.child_process import run_child

STARTED = b"Starting to serve"
_LOG_LINE = re.compile(rb"[IWEF]\d{4} ")  # kubectl logs each error that its response has too


class KubeContext(NamedTuple):
    """The chosen context."""

    name: str
    namespace: str  # empty: none
    has_plugin: bool  # that makes its credentials


def read_context(flags: Sequence[str]) -> KubeContext:
    """Raises ConfigurationError with kubectl's error, as for a kubeconfig without a current context."""
    words = [_find_kubectl(), "config", "view", "--minify", "--output=json", *flags]
    done = _run(words)
    if done.returncode:
        raise _explain(done.stderr)
    config = decode_object(done.stdout)
    about, *_ = config.objects("contexts") or [Row()]
    user, *_ = config.objects("users") or [Row()]
    namespace = about.object("context").text("namespace")
    return KubeContext(about.text("name"), namespace, bool(user.object("user").object("exec")))


def list_contexts(kubeconfig: str | None) -> list[str]:
    """The names of all contexts; none if kubectl fails."""
    flags = [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
    try:
        words = [_find_kubectl(), "config", "get-contexts", "--output=name", *flags]
    except ConfigurationError:
        return []
    return sorted(_run(words).stdout.decode("utf-8", "replace").split())


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)  # noqa: S603 - fixed words, flags of the user


@contextmanager
def run_proxy(flags: Sequence[str]) -> Iterator[Path]:
    """The socket of a running proxy. Raises ConfigurationError with kubectl's error, as for an unknown context.

    Nobody is connected to yet: wrong credentials and unreachable servers are errors of the first request. Credential
    plugins may ask on the terminal meanwhile.
    """
    with _ending_on_sigterm(), tempfile.TemporaryDirectory(prefix="gpusteward-") as folder:  # of mode 0700
        path = Path(folder) / "proxy"
        words = [_find_kubectl(), "proxy", f"--unix-socket={path}", "--append-server-path", *flags]
        with run_child(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as proxy:
            assert proxy.stdout is not None
            assert proxy.stderr is not None
            if not proxy.stdout.readline().startswith(STARTED):
                raise _explain(proxy.stderr.read())
            threading.Thread(target=_show_questions, args=(proxy.stderr,), daemon=True).start()
            yield path


@contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """As an error ends the command: the proxy and its folder end with it. The kernel alone would leave both, but for
    the proxy on Linux."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _find_kubectl() -> str:
    found = shutil.which("kubectl")
    if found is None:
        raise ConfigurationError(
            "kubectl is not on the PATH; it makes the way to the analyzer. Without it: gpusteward COMMAND --server URL"
        )
    return found


def _explain(printed: bytes) -> ConfigurationError:
    lines = printed.decode("utf-8", "replace").strip().splitlines() or ["it ended at once"]
    return ConfigurationError(f"kubectl: {clean(lines[-1].removeprefix('error: '))}; see --context and --kubeconfig")


def _show_questions(stream: IO[bytes]) -> None:
    """Those of credential plugins go to the terminal, kubectl's log does not: top draws there."""
    with suppress(OSError, ValueError):  # it is closed
        while chunk := os.read(stream.fileno(), 65536):
            kept = b"".join(line for line in chunk.splitlines(keepends=True) if not _LOG_LINE.match(line))
            sys.stderr.write(kept.decode("utf-8", "replace"))
            sys.stderr.flush()
