"""Field lists that are read at the start and reloaded when their file or ConfigMap changes.

An invalid list at the start stops the agent. A list that becomes invalid later is rejected and logged once; the last
valid one stays active.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path

from gpusteward.agent.fields.field_list import FieldList, parse_fields
from gpusteward.core.errors import ConfigurationError, GpustewardError, SourceError
from gpusteward.logs import Log
from gpusteward.messages.errors import settings_errors as messages
from gpusteward.messages.errors.os_errors import explain_os_error

log = Log(__name__)

CONFIG_MAP_KEY = "metrics"
CONFIG_MAP_PERIOD_SECONDS = 30.0
"""The kubelet needs about a minute to update a mounted ConfigMap; half of that is enough here."""


def warn_of_unserved(fields: FieldList, where: str) -> None:
    """Log which fields of the list are not exported."""
    if fields.unserved:
        log.warning("fields_unserved", source=where, names=",".join(fields.unserved), reason="not in NVML")


class _ReloadedFieldList(ABC):
    """The last valid list of one source, and counts of its reloads."""

    def __init__(self, where: str, *, period_seconds: float) -> None:
        self.reloads_ok = 0
        self.reloads_refused = 0
        self._where = where
        self._period = period_seconds
        self._checked_at: float | None = None
        self._error = ""
        self._text = self._read_text()
        self.fields = self._parse(self._text)

    def poll(self, now: float) -> FieldList:
        """The current list; a new object only when it changed. `now` is in monotonic seconds."""
        if self._checked_at is None or now - self._checked_at >= self._period:
            self._checked_at = now
            self._check()
        return self.fields

    def _check(self) -> None:
        try:
            text = self._read_text()
            if text != self._text or self._error:
                self._accept(text)
        except GpustewardError as error:
            self._reject(str(error))

    def _accept(self, text: str) -> None:
        fields = self._parse(text)
        self._error = ""
        if text == self._text:  # it was missing or invalid for a while and is unchanged
            return
        self._text, self.fields = text, fields
        self.reloads_ok += 1
        log.info("fields_reloaded", source=self._where, metrics=len(fields.metrics), labels=len(fields.labels))

    def _reject(self, error: str) -> None:
        """Log a new error once; the same error repeats at every check until the list is fixed."""
        if error == self._error:
            return
        self._error = error
        self.reloads_refused += 1
        log.warning("fields_refused", source=self._where, reason=error, kept="the last valid list")

    def _parse(self, text: str) -> FieldList:
        fields = parse_fields(text, where=self._where)
        warn_of_unserved(fields, self._where)
        return fields

    @abstractmethod
    def _read_text(self) -> str:
        """Raises ConfigurationError or SourceError."""


class FieldFile(_ReloadedFieldList):
    """A CSV file, also from a mounted ConfigMap, whose files are symlinks that change together.

    Raises ConfigurationError when it cannot be read or is invalid at the start.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, ...] = ()
        super().__init__(str(path), period_seconds=0.0)

    def _check(self) -> None:
        """Read the file only if the target of its symlinks is another file or was modified."""
        with contextlib.suppress(OSError):
            if self._read_stamp() == self._stamp:
                return
        super()._check()

    def _read_text(self) -> str:
        try:
            # Taken before reading: a write in between shows as a change at the next check.
            self._stamp = self._read_stamp()
            return self._path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise ConfigurationError(
                messages.NOT_UTF8, path=self._path, reason=error.reason, byte=error.start
            ) from error
        except OSError as error:
            self._stamp = ()
            raise ConfigurationError(
                messages.FILE_UNREADABLE, path=self._path, reason=explain_os_error(error), setting="--collectors"
            ) from error

    def _read_stamp(self) -> tuple[int, ...]:
        stat = self._path.stat()
        return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size


class FieldConfigMap(_ReloadedFieldList):
    """The key `metrics` of a ConfigMap, read through the API server.

    Raises ConfigurationError when it is invalid at the start, SourceError when it cannot be read.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[], Mapping[str, str]],
        *,
        period_seconds: float = CONFIG_MAP_PERIOD_SECONDS,
    ) -> None:
        self._read = read
        super().__init__(f"ConfigMap {name}", period_seconds=period_seconds)

    def _read_text(self) -> str:
        try:
            data = self._read()
        except SourceError as error:
            raise SourceError(
                messages.FILE_UNREADABLE, path=self._where, reason=error, setting="--configmap-data"
            ) from error
        if CONFIG_MAP_KEY not in data:
            keys = ", ".join(sorted(data)) or "none"
            raise ConfigurationError(f"{self._where} has no key {CONFIG_MAP_KEY!r}; its keys: {keys}")
        return data[CONFIG_MAP_KEY]
