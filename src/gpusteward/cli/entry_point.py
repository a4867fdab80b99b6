"""Which program was started: `gpusteward`, or its plugin `kubectl gpusteward`, which reaches the analyzer through the
API server of a kubeconfig."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

NAME = "gpusteward"
PLUGIN_NAME = "kubectl gpusteward"
PLUGIN_COMMANDS = ("idle", "top", "explain", "report", "ps", "plan", "lend", "actions", "help")
"""Those that only read with GET: the roles of the chart allow nothing else through the proxy of the API server."""

_is_plugin = ContextVar("is_plugin", default=False)


@contextmanager
def start_as_plugin() -> Iterator[None]:
    token = _is_plugin.set(True)
    try:
        yield
    finally:
        _is_plugin.reset(token)


def is_plugin() -> bool:
    return _is_plugin.get()


def name_program() -> str:
    """As people type it."""
    return PLUGIN_NAME if is_plugin() else NAME
