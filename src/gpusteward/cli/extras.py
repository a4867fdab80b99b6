"""What `serve`, `settings`, `up` and `demo` have in common: the analyzer's settings as flags, and its libraries."""

from collections.abc import Iterator
from contextlib import contextmanager

from gpusteward.cli.exit_codes import describe_exits
from gpusteward.cli.flags import FlagParser
from gpusteward.core.errors import ConfigurationError


def build_settings_parser(name: str, description: str) -> FlagParser:
    """Raises ModuleNotFoundError where the analyzer's libraries are missing."""
    from gpusteward.analyzer.settings.flags import add_settings_flags

    parser = FlagParser(prog=f"gpusteward {name}", description=description, epilog=describe_exits(name))
    add_settings_flags(parser)
    return parser


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """A library that is missing is told with the extra that brings it; a file of our own is a fault.

    Raises ConfigurationError.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("gpusteward"):
            raise
        raise ConfigurationError(
            f"this needs {error.name!r}, which is not installed: pip install 'gpusteward[{extra}]'"
        ) from error
