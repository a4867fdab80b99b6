"""A text file that is looked at again while the program runs; a mounted ConfigMap or Secret is followed too."""

import contextlib
from pathlib import Path

from gpusteward.core.errors import ConfigurationError

Stamp = tuple[int, ...]


class WatchedText:
    """One file. It is opened only when what stands at the end of its links is another one, or was written to."""

    def __init__(self, path: Path, *, setting: str) -> None:
        self.path = path
        self._setting = setting  # what a person would mend, for complaints
        self._stamp: Stamp | None = None

    def has_changed(self) -> bool:
        """Whether `read` would find something else than last time; also true while the file is missing."""
        with contextlib.suppress(OSError):
            return self._read_stamp() != self._stamp
        return True

    def read(self) -> str:
        """The text as it is now. Raises ConfigurationError when it cannot be read."""
        try:
            # Stamped before reading: what is written in between shows as a change at the next look.
            self._stamp = self._read_stamp()
            return self.path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"{self.path} is not UTF-8 text: {error.reason} at byte {error.start}") from None
        except OSError as error:
            self._stamp = None
            raise ConfigurationError(
                f"{self.path} cannot be read: {error.strerror or error}; check {self._setting}"
            ) from error

    def _read_stamp(self) -> Stamp:
        stat = self.path.stat()
        return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size
