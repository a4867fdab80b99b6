"""Targets in a file of Prometheus' file_sd form, JSON or YAML; read again when it changes."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import yaml

from gpusteward.analyzer.read.scrape.addresses import DEFAULT_PATH, parse_address
from gpusteward.analyzer.read.scrape.settings import ScrapeSettings
from gpusteward.analyzer.read.scrape.targets import Target
from gpusteward.analyzer.watched import WatchedText
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
        self._text = WatchedText(path, setting=self.origin)
        self._settings = settings
        self._complaint: ConfigurationError | None = None

    def read(self) -> tuple[Target, ...] | None:
        """Raises ConfigurationError for as long as the file is a bad one."""
        if self._text.has_changed():
            try:
                targets = tuple(self._targets(_decode(self._text.read(), self._text.path)))
            except ConfigurationError as error:
                self._complaint = error
            else:
                self._complaint = None
                return targets
        if self._complaint is not None:
            raise self._complaint
        return None

    def _targets(self, groups: list[_Group]) -> Iterator[Target]:
        for group in groups:
            labels = {name: text for name, text in group.labels.items() if not name.startswith(_META)}
            for text in group.targets:
                address = parse_address(
                    text,
                    scheme=_one_of(group.labels.get("__scheme__", self._settings.scheme)),
                    port=self._settings.port,
                    path=group.labels.get("__metrics_path__", DEFAULT_PATH),
                )
                yield Target(address, labels)


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
