"""Libraries that an image or a workstation may lack: requirements/ has what each of them needs."""

from collections.abc import Iterator
from contextlib import contextmanager

from gpusteward.core.errors import ConfigurationError
from gpusteward.process_memory import paused_gc


class MissingLibraryError(ConfigurationError):
    """A library is not installed."""


@contextmanager
def require_libraries() -> Iterator[None]:
    """Wraps imports: if a library is missing, raises MissingLibraryError, which says how to install it."""
    try:
        with paused_gc():
            yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library == "gpusteward":
            raise
        raise MissingLibraryError(f"{library!r} is not installed: pip install gpusteward") from error
