"""A text file that is read again when it changes; a mounted ConfigMap or Secret is followed through its links."""

import contextlib
import stat
from pathlib import Path

from gpusteward.core.errors import ConfigurationError
from gpusteward.messages.errors import os_errors as messages
from gpusteward.messages.errors.os_errors import explain_os_error

FileStamp = tuple[int, ...]


class WatchedFile:
    """One file. It is opened only when its links lead to another file, or when it was written to."""

    def __init__(self, path: Path, *, setting: str) -> None:
        self.path = path
        self._setting = setting  # names the path in error texts
        self._stamp: FileStamp | None = None

    def has_changed(self) -> bool:
        """Whether the file differs from the last `read`; also true while it is missing."""
        with contextlib.suppress(OSError):
            return self._read_stamp() != self._stamp
        return True

    def read(self) -> str:
        """The current text. Raises ConfigurationError when it cannot be read."""
        try:
            # Before reading: what is written in between is seen as a change at the next check.
            self._stamp = self._read_stamp()
            return self.path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise ConfigurationError(messages.NOT_UTF8, path=self.path, reason=error.reason, byte=error.start) from None
        except OSError as error:
            self._stamp = None
            raise ConfigurationError(
                messages.FILE_UNREADABLE, path=self.path, reason=explain_os_error(error), setting=self._setting
            ) from error

    def check_writers(self) -> None:
        """For a file with secrets. Raises ConfigurationError if others may write it."""
        mode = read_mode(self.path)
        if mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ConfigurationError(
                f"{self.path} ({self._setting}) may be written by other users (mode {mode:04o}): "
                "whoever can add a token there has its role; run chmod go-w on it"
            )

    def _read_stamp(self) -> FileStamp:
        status = self.path.stat()
        return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size


def read_mode(path: Path) -> int:
    """The permissions of a file; 0 if it cannot be found."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return 0
