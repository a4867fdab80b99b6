"""The settings while the program runs. A change reaches the source, the explainer, the bearer tokens and the log."""

import stat
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpusteward.analyzer.active_source import ActiveSource
from gpusteward.analyzer.api.http.roles import Roles
from gpusteward.analyzer.explain.explainer import Explainer
from gpusteward.analyzer.settings.file import SettingsFile
from gpusteward.analyzer.settings.masked import MaskedSetting, mask_settings
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.core.errors import ConfigurationError
from gpusteward.logs import Log, configure_logs
from gpusteward.watched_file import read_mode

log = Log(__name__)


class RuntimeSettings:
    """Safe to use from any thread. The settings of source and explainer change only between two cycles."""

    def __init__(self, file: SettingsFile, *, source: ActiveSource, explainer: Explainer) -> None:
        """Raises ConfigurationError for tokens that cannot be used."""
        self._file = file
        self._source = source
        self._explainer = explainer
        self._lock = threading.Lock()
        self._applied = file.settings  # to the log and the tokens
        self._applied_to_cycles = file.settings  # to the source and the explainer
        self._roles = _read_roles(file.settings)

    @property
    def current(self) -> Settings:
        return self._file.settings

    @property
    def roles(self) -> Roles:
        return self._roles

    def describe(self) -> Sequence[MaskedSetting]:
        """Every setting with its origin; secrets are masked."""
        return mask_settings(self._file.effective)

    def reload(self) -> bool:
        """Read changed files; whether the settings have changed."""
        with self._lock:
            settings = self._file.poll(time.monotonic())
            self._roles.reload()
            has_changed = settings != self._applied
            self._apply(settings)
            return has_changed

    def change(self, values: Mapping[str, object]) -> Settings:
        """Raises ConfigurationError, and changes nothing, for values that cannot be used."""
        with self._lock:
            settings = self._file.change(values)
            self._apply(settings)
            return settings

    def begin_cycle(self) -> Settings:
        """The settings of the next cycle. Only for the thread that runs cycles."""
        self.reload()
        settings = self.current
        if settings.ai != self._applied_to_cycles.ai:
            self._explainer.adopt(settings.ai)
        try:
            self._source.adopt(settings)
        except ConfigurationError as error:
            if settings != self._applied_to_cycles:
                log.warning("source_not_changed", reason=error, kept="the previous source")
        self._applied_to_cycles = settings
        return settings

    def count_reloads(self) -> Mapping[str, int]:
        return {"ok": self._file.reloads_ok, "refused": self._file.reloads_refused + self._roles.reloads_refused}

    def _apply(self, settings: Settings) -> None:
        before, self._applied = self._applied, settings
        if settings.logging != before.logging:
            configure_logs(level=settings.logging.level, as_json=before.logging.as_json)
        tokens = (settings.server.tokens_file, settings.server.tokens)
        if tokens != (before.server.tokens_file, before.server.tokens):
            self._change_tokens(settings)

    def _change_tokens(self, settings: Settings) -> None:
        try:
            self._roles = _read_roles(settings)
        except ConfigurationError as error:
            log.warning("tokens_refused", reason=error, kept="the previous tokens")


def _read_roles(settings: Settings) -> Roles:
    """Raises ConfigurationError."""
    roles = Roles(settings.server.tokens_file, settings.server.tokens)
    if settings.server.tokens_file is not None:
        _warn_if_readable(settings.server.tokens_file)
    return roles


def _warn_if_readable(tokens_file: Path) -> None:
    """The group may read: that is how Kubernetes mounts a Secret for a user other than root."""
    mode = read_mode(tokens_file)
    if mode & stat.S_IROTH:
        log.warning("tokens_file_readable", file=tokens_file, mode=f"{mode:04o}", help="run chmod o-r on it")
