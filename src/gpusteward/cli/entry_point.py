"""Which program was started: `gpusteward`, or its plugin `kubectl gpusteward`, which reaches the analyzer through the
API server of a kubeconfig."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from typing import TypeVar

NAME = "gpusteward"
PLUGIN_NAME = "kubectl gpusteward"
PLUGIN_COMMANDS = ("idle", "top", "explain", "report", "ps", "plan", "lend", "actions", "help")
"""Those that only read with GET: the roles of the chart allow nothing else through the proxy of the API server."""

_T = TypeVar("_T")
_plugin: ContextVar[ExitStack | None] = ContextVar("plugin", default=None)


@contextmanager
def start_as_plugin() -> Iterator[None]:
    with ExitStack() as until_exit:
        token = _plugin.set(until_exit)
        try:
            yield
        finally:
            _plugin.reset(token)


def is_plugin() -> bool:
    return _plugin.get() is not None


def enter_until_exit(context: AbstractContextManager[_T]) -> _T:
    """What a command of the plugin needs until it ends."""
    until_exit = _plugin.get()
    assert until_exit is not None
    return until_exit.enter_context(context)


def name_program() -> str:
    """As people type it."""
    return PLUGIN_NAME if is_plugin() else NAME
