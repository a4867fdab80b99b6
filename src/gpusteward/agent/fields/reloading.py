"""A field list and the place it comes from: read at the start, looked at again, replaced when it changed.

A list that cannot be used at the start stops the agent; one that turns bad later is refused, said once, and the last
good one stays.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path

from gpusteward.agent.fields.field_list import FieldList, parse_fields
from gpusteward.core.errors import ConfigurationError, GpustewardError, SourceError
from gpusteward.logs import Log

log = Log(__name__)

CONFIG_MAP_KEY = "metrics"
CONFIG_MAP_PERIOD_SECONDS = 30.0
"""A mounted ConfigMap takes the kubelet about a minute to change: half of that is soon enough here."""


class _ReloadedFieldList(ABC):
    """The last good list of one place, and how its changes went."""

    def __init__(self, where: str, *, period_seconds: float) -> None:
        self.reloads_ok = 0
        self.reloads_refused = 0
        self._where = where
        self._period = period_seconds
        self._looked_at: float | None = None
        self._complaint = ""
        self._text = self._read_text()
        self.fields = self._parse(self._text)

    def poll(self, now: float) -> FieldList:
        """The list to use from now on; another object only when it changed. `now` is monotonic seconds."""
        if self._looked_at is None or now - self._looked_at >= self._period:
            self._looked_at = now
            self._look()
        return self.fields

    def _look(self) -> None:
        try:
            text = self._read_text()
            if text != self._text or self._complaint:
                self._accept(text)
        except GpustewardError as error:
            self._refuse(str(error))

    def _accept(self, text: str) -> None:
        fields = self._parse(text)
        self._complaint = ""
        if text == self._text:  # it was gone or bad for a while and came back as it was
            return
        self._text, self.fields = text, fields
        self.reloads_ok += 1
        log.info("fields_reloaded", source=self._where, metrics=len(fields.metrics), labels=len(fields.labels))

    def _refuse(self, complaint: str) -> None:
        """Say it once: the same complaint comes back at every look until somebody mends the list."""
        if complaint == self._complaint:
            return
        self._complaint = complaint
        self.reloads_refused += 1
        log.warning("fields_refused", source=self._where, reason=complaint, kept="the last good list")

    def _parse(self, text: str) -> FieldList:
        fields = parse_fields(text, where=self._where)
        if fields.unserved:
            log.warning("fields_unserved", source=self._where, names=",".join(fields.unserved), reason="not in NVML")
        return fields

    @abstractmethod
    def _read_text(self) -> str:
        """Raises ConfigurationError or SourceError."""


class FieldFile(_ReloadedFieldList):
    """A CSV file. A mounted ConfigMap, whose files are links that all change at once, is followed too.

    Raises ConfigurationError when it cannot be read or used at the start.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, ...] = ()
        super().__init__(str(path), period_seconds=0.0)

    def _look(self) -> None:
        """The file is opened only when what stands at the end of its links is another one, or was written to."""
        with contextlib.suppress(OSError):
            if self._read_stamp() == self._stamp:
                return
        super()._look()

    def _read_text(self) -> str:
        try:
            # Stamped before reading: what is written in between shows as a change at the next look.
            self._stamp = self._read_stamp()
            return self._path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"{self._path} is not UTF-8 text: {error.reason} at byte {error.start}") from error
        except OSError as error:
            self._stamp = ()
            reason = error.strerror or error
            raise ConfigurationError(f"{self._path} cannot be read: {reason}; check --collectors") from error

    def _read_stamp(self) -> tuple[int, ...]:
        stat = self._path.stat()
        return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size


class FieldConfigMap(_ReloadedFieldList):
    """The key `metrics` of a ConfigMap, read through the API server.

    Raises ConfigurationError when it cannot be used at the start, SourceError when it cannot be read.
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
            raise SourceError(f"{self._where} cannot be read: {error}; check --configmap-data") from error
        if CONFIG_MAP_KEY not in data:
            held = ", ".join(sorted(data)) or "nothing"
            raise ConfigurationError(f"{self._where} has no key {CONFIG_MAP_KEY!r}; it holds {held}")
        return data[CONFIG_MAP_KEY]
