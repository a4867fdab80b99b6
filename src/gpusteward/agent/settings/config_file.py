"""dcgm-exporter's YAML configuration file (`--config-file`), since 4.8.3: version 1, and version 2 since 4.8.4.

    version: 2
    metrics:
      file: /etc/dcgm-exporter/default-counters.csv   # or `fields`, each with name, prometheusType and help
    collections:                                      # in version 1 `collection`, with interval and watchGroups
      - {name: scrape, every: 30s, metrics: {include: ["*"]}}
    server:
      maxConcurrentScrapes: 16

Every error is one message with the key, the file and the line.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gpusteward.agent.field_list import Record, choose_fields
from gpusteward.agent.settings.flags import Ignored
from gpusteward.agent.settings.foreign_flags import ALWAYS_SEEN, NO_SAMPLES
from gpusteward.agent.settings.values import parse_switch, whole_between
from gpusteward.core.did_you_mean import suggest
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.settings import InvalidSettingError, Origin, Source, parse_duration
from gpusteward.watched_file import WatchedFile

if TYPE_CHECKING:
    from gpusteward.yaml_lines import Written

_Value = TypeVar("_Value")

_COLUMNS = ("name", "prometheusType", "help")
LOWEST_SECONDS, HIGHEST_SECONDS = 0.5, 600.0
ONE_INTERVAL = "The page has one interval for all fields, see --interval."


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """Values of the agent's settings, by attribute, and what has no effect here."""

    values: Mapping[str, Any]
    ignored: tuple[Ignored, ...]


def read_config_file(path: Path) -> ConfigFile:
    """Raises ConfigurationError."""
    from gpusteward.yaml_lines import Written, parse_yaml  # loads PyYAML, 2 MB, only with this file

    document = parse_yaml(WatchedFile(path, setting="--config-file").read(), where=str(path)) or Written(
        None, None, 1, children={}
    )
    return _ConfigReader().read(_FileValue(document, "", str(path)))


class _FileValue:
    """A value of the file: where it is, and what it must be. Each method raises ConfigurationError."""

    def __init__(self, written: "Written", path: str, file: str) -> None:
        self._written, self._file = written, file
        self.path = path  # such as collections[1].every
        self.line = written.line

    @property
    def origin(self) -> Origin:
        return Origin(Source.FILE, self._file, self.line)

    def refuse(self, problem: str) -> ConfigurationError:
        return ConfigurationError(f"{self.path or 'version'} ({self.origin}): {problem}")

    def keys(self, *known: str) -> "dict[str, _FileValue]":
        """The keys of a mapping that have a value."""
        if self._written.children is None:
            raise self.refuse("write keys with values")
        prefix = f"{self.path}." if self.path else ""
        nodes = {key: _FileValue(each, prefix + key, self._file) for key, each in self._written.children.items()}
        for key, node in nodes.items():
            if key not in known:
                raise node.refuse(f"unknown key{suggest(key, known)}")
        return {key: node for key, node in nodes.items() if node._written.value is not None}

    def items(self) -> "list[_FileValue]":
        """The items of a list that is not empty."""
        if not self._written.items:
            raise self.refuse("write a list with at least one item")
        return [_FileValue(each, f"{self.path}[{n}]", self._file) for n, each in enumerate(self._written.items)]

    def text(self) -> str:
        """A text as written."""
        text = (self._written.text or "").strip()
        if not text:
            raise self.refuse("write a single value")
        return text

    def parse(self, parse: Callable[[str], _Value]) -> _Value:
        text = self.text()
        try:
            return parse(text)
        except InvalidSettingError as error:
            raise ConfigurationError(f"{self.path}: {text!r} ({self.origin}): {error.problem}") from error


class _ConfigReader:
    """Reads one file."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._ignored: list[Ignored] = []

    def read(self, document: _FileValue) -> ConfigFile:
        top = document.keys("version", "metrics", "collection", "collections", "sources", "server")
        version = top["version"].text() if "version" in top else ""
        if version not in ("1", "2"):
            raise top.get("version", document).refuse("write version: 1 or version: 2")
        for key, read in (
            ("metrics", self._read_metrics),
            ("collection", self._read_collection),
            ("collections", self._read_collections),
            ("sources", self._read_sources),
            ("server", self._read_server),
        ):
            if key not in top:
                continue
            if (key, version) in (("collection", "2"), ("collections", "1")):
                raise top[key].refuse(f"version {version} does not have this key")
            read(top[key])
        return ConfigFile(self._values, tuple(self._ignored))

    def _read_metrics(self, metrics: _FileValue) -> None:
        keys = metrics.keys("file", "fields", "enableExporterMetrics")
        if "file" in keys and "fields" in keys:
            raise metrics.refuse("write either file or fields, not both")
        if "file" in keys:
            self._values["collectors"] = Path(keys["file"].text())
        if "fields" in keys:
            records = []
            for field in keys["fields"].items():
                cells = field.keys(*_COLUMNS)
                records.append(Record(field.line, tuple(_need(field, cells, column).text() for column in _COLUMNS)))
            self._values["fields"] = choose_fields(records, where=metrics.origin.place)
        if "enableExporterMetrics" in keys:
            keys["enableExporterMetrics"].parse(parse_switch)  # metrics about the agent are always served

    def _read_collection(self, collection: _FileValue) -> None:
        keys = collection.keys("interval", "retention", "watchGroups")
        if "interval" in keys:
            self._values["interval_seconds"] = keys["interval"].parse(_parse_interval)
        self._ignore(keys, "retention", NO_SAMPLES)
        for group in keys["watchGroups"].items() if "watchGroups" in keys else ():
            own = group.keys("name", "interval", "fields", "retention")
            self._ignore_interval(_need(group, own, "interval"))

    def _read_collections(self, collections: _FileValue) -> None:
        for collection in collections.items():
            keys = collection.keys("name", "every", "metrics", "sources")
            every, metrics = (_need(collection, keys, key) for key in ("every", "metrics"))
            include = _need(metrics, metrics.keys("include"), "include")
            if [each.text() for each in include.items()] == ["*"]:  # all fields
                self._values["interval_seconds"] = every.parse(_parse_interval)
            else:
                self._ignore_interval(every)
            self._ignore(keys, "sources", NO_SAMPLES)

    def _read_sources(self, sources: _FileValue) -> None:
        dcgm = sources.keys("dcgm").get("dcgm")
        keys = dcgm.keys("watch", "detectBindUnbind") if dcgm else {}
        self._ignore(keys, "watch", NO_SAMPLES)
        self._ignore(keys, "detectBindUnbind", ALWAYS_SEEN)

    def _read_server(self, server: _FileValue) -> None:
        keys = server.keys("maxConcurrentScrapes")
        if "maxConcurrentScrapes" in keys:
            self._values["max_concurrent_scrapes"] = keys["maxConcurrentScrapes"].parse(whole_between(1, 1000))

    def _ignore_interval(self, interval: _FileValue) -> None:
        interval.parse(parse_duration)
        self._ignored.append(Ignored(f"{interval.path} ({interval.origin})", ONE_INTERVAL))

    def _ignore(self, keys: Mapping[str, _FileValue], key: str, reason: str) -> None:
        if key in keys:
            self._ignored.append(Ignored(f"{keys[key].path} ({keys[key].origin})", reason))


def _need(node: _FileValue, keys: Mapping[str, _FileValue], key: str) -> _FileValue:
    """Raises ConfigurationError."""
    if key not in keys:
        raise node.refuse(f"the key {key!r} is missing")
    return keys[key]


def _parse_interval(text: str) -> float:
    seconds = parse_duration(text)
    if not LOWEST_SECONDS <= seconds <= HIGHEST_SECONDS:
        raise InvalidSettingError("write 500ms to 10m")
    return seconds
