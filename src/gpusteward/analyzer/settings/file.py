"""The settings while the program runs: a changed file is picked up, a bad change is refused and said once.

What was bad at the start stops the program; what turns bad later leaves the last good settings in force.
"""

from collections.abc import Mapping
from pathlib import Path

from gpusteward.analyzer.settings.flags import Flags, read_flags
from gpusteward.analyzer.settings.layers import Layer, read_document, read_environment
from gpusteward.analyzer.settings.reading import KNOWN, Effective, GaveWay, settle, value_at
from gpusteward.analyzer.settings.settings import NEEDS_RESTART, Settings
from gpusteward.analyzer.settings.validation_errors import describe_unknown
from gpusteward.analyzer.settings.yaml_lines import parse_yaml
from gpusteward.analyzer.watched_file import WatchedFile
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.settings import Given, Origin, Source
from gpusteward.logs import Log

log = Log(__name__)

DEFAULT_FILE = "config.yaml"
CONFIG_VARIABLE = "GPUSTEWARD_CONFIG"


class SettingsFile:
    """Flags, environment and file, settled together. Only the file is looked at again.

    Raises ConfigurationError when what is there at the start cannot be used.
    """

    def __init__(self, flags: Flags, environ: Mapping[str, str], *, directory: Path) -> None:
        self.reloads_ok = 0
        self.reloads_refused = 0
        self._named = flags.config or _named_in(environ)
        path = directory / (self._named or DEFAULT_FILE)
        self._watched = WatchedFile(path, setting="--config")
        self._where = str(self._named or DEFAULT_FILE)
        self._is_optional = self._named is None  # until it has been there once
        self._said_unknown: set[str] = set()
        self._said_gave_way: set[GaveWay] = set()
        self._complaint = ""
        self._environment = read_environment(environ, KNOWN)
        self._flags = read_flags(flags, KNOWN)
        self._requested: dict[str, Given] = {}
        self._file = self._read_file()
        self.effective = self._settle(self._file)
        self._warn_of_unknown()
        self._warn_of_what_gave_way()

    @property
    def settings(self) -> Settings:
        return self.effective.settings

    def poll(self, now: float) -> Settings:
        """The settings to use from now on; another object only when something changed. `now`: monotonic seconds."""
        del now  # a look costs one stat: every poll looks
        if self._watched.has_changed():
            try:
                self._accept(self._read_file())
            except ConfigurationError as error:
                self._refuse(str(error))
        return self.settings

    def change(self, values: Mapping[str, object]) -> Settings:
        """Set these paths on top of everything, until the program ends.

        Raises ConfigurationError, and changes nothing, when they cannot be used.
        """
        origin = Origin(Source.REQUEST)
        requested = self._requested | {path: Given(value, origin) for path, value in values.items()}
        effective = self._settle(self._file, requested)
        self._requested, self.effective = requested, effective
        self._warn_of_what_gave_way()
        return self.settings

    def _settle(self, file: Layer, requested: Mapping[str, Given] | None = None) -> Effective:
        on_top = Layer(self._requested if requested is None else requested)
        return settle(file, self._environment, self._flags, on_top)

    def _read_file(self) -> Layer:
        """No file at all is no complaint where none was asked for."""
        if self._is_optional and not self._watched.path.exists():
            return Layer({})
        text = self._watched.read()
        self._is_optional = False
        return read_document(parse_yaml(text, where=self._where), KNOWN, where=self._where)

    def _accept(self, file: Layer) -> None:
        wanted = self._settle(file)
        changed = [path for path in KNOWN if _differs(path, wanted.settings, self.settings)]
        held = tuple(path for path in changed if _needs_restart(path))
        self._file = _hold(file, self._file, held)
        self._complaint = ""
        self._warn_of_unknown()
        if changed:
            self.effective = self._settle(self._file)
            self._tell(changed, held)
            self._warn_of_what_gave_way()

    def _tell(self, changed: list[str], held: tuple[str, ...]) -> None:
        self.reloads_ok += 1
        taken = ",".join(path for path in changed if path not in held)
        log.info("settings_reloaded", file=self._where, changed=taken or "none")
        if held:
            log.warning("settings_held_back", file=self._where, paths=",".join(held), reason="they need a restart")

    def _refuse(self, complaint: str) -> None:
        """Say it once: the same complaint comes back at every look until somebody mends the file."""
        if complaint == self._complaint:
            return
        self._complaint = complaint
        self.reloads_refused += 1
        log.warning("settings_refused", file=self._where, reason=complaint, kept="the last good settings")

    def _warn_of_unknown(self) -> None:
        for path, origin in (*self._file.unknown, *self._environment.unknown):
            if path not in self._said_unknown:
                self._said_unknown.add(path)
                log.warning("setting_unknown", setting=path, origin=origin, hint=describe_unknown(path, KNOWN))

    def _warn_of_what_gave_way(self) -> None:
        for each in self.effective.gave_way:
            if each not in self._said_gave_way:
                self._said_gave_way.add(each)
                facts = {"setting": each.path, "origin": each.origin, "value": each.value, "used": each.used}
                log.warning("setting_gives_way", **facts, reason="idle <= low_utilization <= high")


def _named_in(environ: Mapping[str, str]) -> Path | None:
    name = environ.get(CONFIG_VARIABLE, "").strip()
    return Path(name) if name else None


def _differs(path: str, one: Settings, other: Settings) -> bool:
    return value_at(one, path) != value_at(other, path)


def _needs_restart(path: str) -> bool:
    return any(path == fixed or path.startswith(f"{fixed}.") for fixed in NEEDS_RESTART)


def _hold(new: Layer, old: Layer, paths: tuple[str, ...]) -> Layer:
    """The new layer with the old one's word on these paths."""
    values = {path: given for path, given in new.values.items() if path not in paths}
    values |= {path: old.values[path] for path in paths if path in old.values}
    return Layer(values, new.unknown)
