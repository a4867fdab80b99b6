"""The settings while the program runs: a changed file is applied, an invalid change is refused and logged once.

Invalid settings at the start stop the program; later the last valid settings stay in use.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gpusteward.analyzer.settings.effective import KNOWN, EffectiveSettings, combine_layers, value_at
from gpusteward.analyzer.settings.flags import Flags, read_flags
from gpusteward.analyzer.settings.layers import Layer, read_document, read_environment
from gpusteward.analyzer.settings.settings import ADVISED, NEEDS_RESTART, Settings
from gpusteward.analyzer.settings.validation_errors import describe_unknown
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.settings import Given, Origin, Source
from gpusteward.logs import Log
from gpusteward.watched_file import WatchedFile
from gpusteward.yaml_lines import parse_yaml

log = Log(__name__)

DEFAULT_FILE = "config.yaml"
CONFIG_VARIABLE = "GPUSTEWARD_CONFIG"
ORDER = "idle <= low_utilization <= high"


class SettingsFile:
    """Flags, environment and file combined. Only the file is read again.

    Raises ConfigurationError when they are invalid at the start.
    """

    def __init__(self, flags: Flags, environ: Mapping[str, str], *, directory: Path) -> None:
        self.reloads_ok = 0
        self.reloads_refused = 0
        variable = environ.get(CONFIG_VARIABLE, "").strip()
        named = flags.config or (Path(variable) if variable else None)
        self._watched = WatchedFile(directory / (named or DEFAULT_FILE), setting="--config")
        self._where = str(named or DEFAULT_FILE)
        self._is_optional = named is None  # until it existed once
        self._logged_unknown: set[str] = set()
        self._logged: set[tuple[str, ...]] = set()
        self._last_error = ""
        self._environment = read_environment(environ, KNOWN)
        self._flags = read_flags(flags, KNOWN)
        self._requested: dict[str, Given] = {}
        self._file = self._read_file()
        self.effective = self._combine(self._file)
        self._warn_unknown()
        self._warn_values()

    @property
    def settings(self) -> Settings:
        return self.effective.settings

    def poll(self, now: float) -> Settings:
        """The settings to use from now on; a new object only when something changed. `now`: monotonic seconds."""
        del now  # checking costs one stat call: every poll checks
        if self._watched.has_changed():
            try:
                self._accept(self._read_file())
            except ConfigurationError as error:
                self._refuse(str(error))
        return self.settings

    def change(self, values: Mapping[str, object]) -> Settings:
        """Set these paths with the highest precedence, until the program ends.

        Raises ConfigurationError, and changes nothing, when they are invalid, or above what is advised: a file may say
        so, but a request must not stop the cycles.
        """
        origin = Origin(Source.REQUEST)
        for path, value in values.items():
            if path in ADVISED and isinstance(value, int | float) and value > (high := ADVISED[path][1]):
                raise ConfigurationError(f"{path}: {value} ({origin}): a request may set it to {high:g} at most")
        requested = self._requested | {path: Given(value, origin) for path, value in values.items()}
        effective = self._combine(self._file, requested)
        self._requested, self.effective = requested, effective
        self._warn_values()
        return self.settings

    def _combine(self, file: Layer, requested: Mapping[str, Given] | None = None) -> EffectiveSettings:
        top = Layer(self._requested if requested is None else requested)
        return combine_layers(file, self._environment, self._flags, top)

    def _read_file(self) -> Layer:
        """A missing file is an error only if it was named."""
        if self._is_optional and not self._watched.path.exists():
            return Layer({})
        text = self._watched.read()
        self._is_optional = False
        return read_document(parse_yaml(text, where=self._where), KNOWN, where=self._where)

    def _accept(self, file: Layer) -> None:
        wanted = self._combine(file)
        changed = [path for path in KNOWN if value_at(wanted.settings, path) != value_at(self.settings, path)]
        held = [path for path in changed if _needs_restart(path)]
        old = {path: self._file.values[path] for path in held if path in self._file.values}
        values = {path: given for path, given in file.values.items() if path not in held} | old
        self._file = replace(file, values=values)
        self._last_error = ""
        self._warn_unknown()
        if changed:
            self.effective = self._combine(self._file)
            self.reloads_ok += 1
            taken = ",".join(path for path in changed if path not in held)
            log.info("settings_reloaded", file=self._where, changed=taken or "none")
            if held:
                log.warning("settings_held_back", file=self._where, paths=",".join(held), reason="they need a restart")
            self._warn_values()

    def _refuse(self, error_text: str) -> None:
        """Log it once: the same error returns at every poll until the file is fixed."""
        if error_text == self._last_error:
            return
        self._last_error = error_text
        self.reloads_refused += 1
        log.warning("settings_refused", file=self._where, reason=error_text, kept="the last valid settings")

    def _warn_unknown(self) -> None:
        for layer in (self._file, self._environment):
            for path, origin in layer.unknown:
                if path not in self._logged_unknown:
                    self._logged_unknown.add(path)
                    hint = describe_unknown(path, KNOWN)
                    log.warning("setting_unknown", setting=path, origin=origin, hint=hint)
            for path, origin in layer.read_as_false:
                self._warn_once("setting_read_as_false", path, origin, reason="as in gpu-oour", hint="write true")

    def _warn_values(self) -> None:
        """Each value once."""
        for each in self.effective.adjusted:
            self._warn_once("setting_adjusted", each.path, each.origin, value=each.value, used=each.used, reason=ORDER)
        for path, (low, high, reason) in ADVISED.items():
            value = value_at(self.settings, path)
            if isinstance(value, int | float) and not low <= value <= high:
                origin = self.effective.origin(path)
                self._warn_once("setting_unwise", path, origin, value=value, advised=f"{low} to {high}", reason=reason)

    def _warn_once(self, event: str, path: str, origin: Origin, **facts: object) -> None:
        warning = (event, path, str(origin), str(facts))
        if warning not in self._logged:
            self._logged.add(warning)
            log.warning(event, setting=path, origin=origin, **facts)


def _needs_restart(path: str) -> bool:
    return any(path == fixed or path.startswith(f"{fixed}.") for fixed in NEEDS_RESTART)
