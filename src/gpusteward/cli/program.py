"""Which program was started: `gpusteward`, or its plugin `kubectl gpusteward`, which reaches the analyzer through the
API server of a kubeconfig; its exit codes, its language, and libraries that a machine may lack."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

from gpusteward.core.errors import ConfigurationError
from gpusteward.core.messages import LANGUAGES, Language
from gpusteward.process_memory import paused_gc

EXIT_OK = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_FOUND = 3
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as in shells
EXIT_PIPE = 141  # 128 + SIGPIPE


class Exit(NamedTuple):
    """When a command exits with a code; an empty command means all of them."""

    code: int
    command: str
    when: str


EXITS = (
    Exit(EXIT_OK, "", "success"),
    *(Exit(EXIT_OK, each, "stopped by Ctrl-C or SIGTERM while serving") for each in ("serve", "demo", "up")),
    Exit(EXIT_FAILURE, "", "a server, device or file is missing or failed; one line on standard error says which"),
    Exit(EXIT_FAILURE, "explain", "no workload with this name holds or held a GPU"),
    Exit(EXIT_FAILURE, "snooze", "no workload with this name holds a GPU or is snoozed, or the token may not do this"),
    Exit(EXIT_FAILURE, "backfill", "the engine failed many times in a row; the next run continues there"),
    Exit(EXIT_FAILURE, "doctor", "a check failed"),
    Exit(EXIT_FAILURE, "up", "the agent exited"),
    Exit(EXIT_USAGE, "", "a flag, variable or file is invalid; one line on standard error says which"),
    *(Exit(EXIT_USAGE, each, "several workloads have this name") for each in ("explain", "snooze")),
    Exit(EXIT_FOUND, "idle", "with --exit-code: at least one workload is listed"),
    Exit(EXIT_INTERRUPTED, "", "interrupted by Ctrl-C"),
    Exit(EXIT_PIPE, "", "broken pipe, as with `| head`"),
)


def describe_exits(command: str) -> str:
    """The section about exit codes in the help of a command."""
    lines = [f"  {each.code:<4} {each.when}" for each in EXITS if each.command in ("", command)]
    return "\n".join(["exit codes:", *lines])


NAME = "gpusteward"
PLUGIN_NAME = "kubectl gpusteward"
PLUGIN_COMMANDS = ("idle", "top", "explain", "report", "ps", "plan", "lend", "actions", "mcp", "help")
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


LANGUAGE_FLAG = "--language"


def find_language(given: str | None, environ: Mapping[str, str]) -> Language:
    """The value of the flag, else the first of LC_ALL, LC_MESSAGES and LANG that is set, in the order of POSIX."""
    if given in LANGUAGES:
        return given
    locale = next((environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if environ.get(name)), "")
    return "zh" if locale.lower().startswith("zh") else "en"


class MissingLibraryError(ConfigurationError):
    """A library is not installed."""


@contextmanager
def require_libraries(extra: str = "") -> Iterator[None]:
    """Wraps imports: if a library is missing, raises MissingLibraryError, which says how to install it. `extra`: of the
    package, where it is not installed by default."""
    try:
        with paused_gc():
            yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library == "gpusteward":
            raise
        package = f"'gpusteward[{extra}]'" if extra else "gpusteward"
        raise MissingLibraryError(f"{library!r} is not installed: pip install {package}") from error
