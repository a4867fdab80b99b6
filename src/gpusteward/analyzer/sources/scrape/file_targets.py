"""Targets in a file of Prometheus' file_sd form, JSON or YAML; read again when it changes."""

from pathlib import Path

import msgspec
import yaml

from gpusteward.analyzer.sources.scrape.settings import DEFAULT_PATH, ScrapeSettings, parse_target
from gpusteward.analyzer.sources.scrape.targets import Target
from gpusteward.analyzer.watched_file import WatchedFile
from gpusteward.core.errors import ConfigurationError

LOOK_SECONDS = 5.0
_META = "__"  # labels that begin so are about the scrape, not about the series


class _Group(msgspec.Struct):
    targets: list[str]
    labels: dict[str, str] = {}


class FileList:
    """One file."""

    origin = "scrape.targets_file"
    seconds = LOOK_SECONDS

    def __init__(self, path: Path, settings: ScrapeSettings) -> None:
        self._text = WatchedFile(path, setting=self.origin)
        self._settings = settings
        self._error: ConfigurationError | None = None
        self.complaint = ""

    def read(self) -> tuple[Target, ...] | None:
        """Raises ConfigurationError for as long as the file is a bad one; a bad address in it costs only itself."""
        if self._text.has_changed():
            try:
                targets = self._read_all(_decode(self._text.read(), self._text.path))
            except ConfigurationError as error:
                self._error = error
            else:
                self._error = None
                return targets
        if self._error is not None:
            raise self._error
        return None

    def _read_all(self, groups: list[_Group]) -> tuple[Target, ...]:
        """Raises ConfigurationError where no address is a good one."""
        entries = [(text, group) for group in groups for text in group.targets]
        found: list[Target] = []
        bad: list[ConfigurationError] = []
        for text, group in entries:
            try:
                found.append(self._read_one(text, group))
            except ConfigurationError as error:
                bad.append(error)
        if bad and not found:
            raise bad[0]
        self.complaint = f"{len(bad)} of {len(entries)} targets left out: {bad[0]}" if bad else ""
        return tuple(found)

    def _read_one(self, text: str, group: _Group) -> Target:
        address = parse_target(
            text,
            scheme=_one_of(group.labels.get("__scheme__", self._settings.scheme)),
            port=self._settings.port,
            path=group.labels.get("__metrics_path__", DEFAULT_PATH),
        )
        return Target(address, {name: said for name, said in group.labels.items() if not name.startswith(_META)})


def _one_of(scheme: str) -> str:
    if scheme not in ("http", "https"):
        raise ConfigurationError(f"__scheme__ is {scheme[:20]!r}: write http or https")
    return scheme


def _decode(text: str, path: Path) -> list[_Group]:
    """Raises ConfigurationError."""
    try:
        if path.suffix == ".json":
            return msgspec.json.decode(text, type=list[_Group])
        return msgspec.convert(yaml.safe_load(text) or [], type=list[_Group])
    except (msgspec.MsgspecError, yaml.YAMLError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigurationError(f"{path} is no list of targets: {reason}; write [{{targets: [HOST:PORT]}}]") from None
