"""Settings as flags: the common ones by name, all others with `--set`."""

import argparse
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic.fields import FieldInfo

from gpusteward.analyzer.settings.layers import Layer, read_texts
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.settings import Origin, Source

FLAGS: Mapping[str, tuple[str, str]] = {
    "--address": ("server.address", "listen address: PORT, :PORT, HOST:PORT or [IPV6]:PORT"),
    "--tokens-file": ("server.tokens_file", "file with bearer tokens and their roles"),
    "--web-config-file": (
        "server.web_config_file",
        "web config file of the exporter-toolkit: TLS, passwords",
    ),
    "--prometheus-url": ("prometheus.url", "URL of the Prometheus-compatible engine to query"),
    "--interval": ("scheduler.interval", "seconds between the starts of two cycles"),
    "--log-level": ("logging.level", "debug, info, warning or error"),
    "--log-format": ("logging.format", "text or json"),
}


@dataclass(frozen=True, slots=True)
class Flags:
    """The settings on the command line: path, text and flag of each."""

    config: Path | None = None
    values: tuple[tuple[str, str, str], ...] = ()  # path, text, flag


def add_settings_flags(parser: argparse.ArgumentParser, *, without: Collection[str] = ()) -> None:
    """All flags except those that the command sets itself."""
    group = parser.add_argument_group("settings", "Precedence: flag, environment, file, default.")
    if "--config" not in without:
        group.add_argument("--config", metavar="PATH", help="settings file (default config.yaml) [GPUSTEWARD_CONFIG]")
    for flag, (path, about) in FLAGS.items():
        if flag not in without:
            metavar = flag.strip("-").upper().replace("-", "_")
            group.add_argument(flag, dest=flag, metavar=metavar, help=f"{about} ({path})")
    group.add_argument(
        "--set",
        dest="set",
        action="append",
        metavar="PATH=VALUE",
        help="any setting by its path, such as ai.enabled=true; may be given several times",
    )


def flags_from(namespace: argparse.Namespace) -> Flags:
    """The flags that `add_settings_flags` defined. Raises ConfigurationError when `--set` has no value."""
    written: dict[str, object] = {name: value for name, value in vars(namespace).items() if value is not None}
    values = [(path, str(written[flag]), flag) for flag, (path, _) in FLAGS.items() if flag in written]
    for assignment in namespace.set or ():
        path, equals, text = assignment.partition("=")
        if not equals:
            raise ConfigurationError(f"--set {assignment!r} has no value: write --set PATH=VALUE")
        values.append((path.strip(), text, "--set"))
    return Flags(Path(str(written["config"])) if "config" in written else None, tuple(values))


def refuse_settings(flags: Flags, fixed: Collection[str], *, command: str) -> None:
    """Raises ConfigurationError for a setting that the command sets itself."""
    for path, _, flag in flags.values:
        if path in fixed:
            raise ConfigurationError(
                f"{flag} {path}: `gpusteward {command}` sets this itself; use `gpusteward serve` to choose it"
            )


def read_flags(flags: Flags, known: Mapping[str, FieldInfo]) -> Layer:
    """Raises ConfigurationError for an unknown path."""
    return read_texts(((path, text, Origin(Source.FLAG, flag)) for path, text, flag in flags.values), known)
