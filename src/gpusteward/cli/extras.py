"""Libraries that are installed only with an extra of the distribution, such as gpusteward[analyzer]."""

from collections.abc import Iterator
from contextlib import contextmanager

from gpusteward.core.errors import ConfigurationError
from gpusteward.messages import cli as messages


class MissingLibraryError(ConfigurationError):
    """A library is not installed."""


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """Around imports. Raises MissingLibraryError, with the extra that installs the missing library."""
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library == "gpusteward":
            raise
        raise MissingLibraryError(messages.MISSING_LIBRARY, library=library, extra=extra) from error
