"""The values given by the environment and the file, one layer each. A later layer covers an earlier one, per value."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic.fields import FieldInfo

from gpusteward.analyzer.setting_values import SecretFile
from gpusteward.analyzer.settings.fields import find_secret_files, is_collection, is_secret, is_text
from gpusteward.analyzer.settings.validation_errors import describe_unknown
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.settings import VARIABLE_PREFIX, Given, Origin, Source, find_variable
from gpusteward.yaml_lines import Written, parse_yaml

GPU_OOUR_VARIABLES: Mapping[str, str] = {
    "PROM_URL": "prometheus.url",
    "QUERY_CONDITION": "prometheus.query_condition",
    "TIME_WINDOW_MIN": "prometheus.time_window_min",
    "THRESHOLD": "thresholds.low_utilization",
    "INTERVAL": "scheduler.interval",
    "MAX_WORKERS": "scheduler.max_workers",
    "CONTROL_API": "control.api_url",
    "CONTROL_API_ENABLED": "control.enabled",
    "AI_ENABLED": "ai.enabled",
    "AI_API_URL": "ai.api_url",
    "AI_API_KEY": "ai.api_key",
    "AI_MODEL": "ai.model",
    "AI_MAX_TOKENS": "ai.max_tokens",
    "AI_RETRY_TIMES": "ai.retry_times",
    "AI_RETRY_DELAY": "ai.retry_delay",
    "LOG_LEVEL": "logging.level",
}
"""gpu-oour's variables; where both are set, the variable of the setting itself wins."""
GPU_OOUR_KEYS = frozenset(GPU_OOUR_VARIABLES.values()) | {
    *("prometheus.step", "thresholds.idle", "control.timeout", "ai.threshold", "logging.format"),
    *("scoring.gpu_util_weight", "scoring.mem_copy_weight", "scoring.mem_used_weight", "scoring.power_weight"),
    *("gpu_defaults.memory_mb", "gpu_defaults.power_w"),
}
"""The keys of its `config.yaml`: whoever comes from there has set them already."""
_SWITCHES = ("control.enabled", "ai.enabled")
"""gpu-oour's settings that are on or off."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Given values by path, and what is logged about them."""

    values: Mapping[str, Given]
    unknown: tuple[tuple[str, Origin], ...] = ()
    read_as_false: tuple[tuple[str, Origin], ...] = ()
    """gpu-oour's switches whose value means true elsewhere, such as 1 or yes: gpu-oour leaves them off."""


def variable_of(path: str) -> str:
    """`prometheus.url` -> `GPUSTEWARD_PROMETHEUS__URL`."""
    return VARIABLE_PREFIX + path.replace(".", "__").upper()


def read_environment(environ: Mapping[str, str], known: Mapping[str, FieldInfo]) -> Layer:
    """gpu-oour's variables and our own. An empty variable is not set, except for gpu-oour's switches: it is off."""
    known = _spell_secret_files(known)
    paths = {name: path for name, path in GPU_OOUR_VARIABLES.items() if path in known}
    paths |= {variable_of(path): path for path in known}
    switches = {name: path for name, path in GPU_OOUR_VARIABLES.items() if path in _SWITCHES and name in environ}
    values = {path: Given(_is_on(environ[name]), Origin(Source.ENVIRONMENT, name)) for name, path in switches.items()}
    values |= {
        path: Given(from_text(environ[name], known[path]), Origin(Source.ENVIRONMENT, name))
        for name, path in paths.items()
        if name not in switches and find_variable([name], environ)
    }
    # Without `__` it may be from Kubernetes, which sets GPUSTEWARD_PORT_8080_TCP for a Service.
    unknown = [name for name in environ if name.startswith(VARIABLE_PREFIX) and "__" in name and name not in paths]
    return Layer(
        _use_secret_files(values, known),
        tuple(
            (name.removeprefix(VARIABLE_PREFIX).lower().replace("__", "."), Origin(Source.ENVIRONMENT, name))
            for name in sorted(unknown)
        ),
        tuple(
            (path, Origin(Source.ENVIRONMENT, name))
            for name, path in switches.items()
            if environ[name] and environ[name].lower() not in ("true", "false")
        ),
    )


def _is_on(value: object) -> bool:
    """As gpu-oour reads its switches: a webhook or a model that is off there must not be on here."""
    return str(value).lower() == "true"


def _is_true_elsewhere(value: object) -> bool:
    """Whether a value of the file means true to us and not to gpu-oour."""
    return not isinstance(value, bool) and str(value).strip().lower() in ("1", "1.0", "yes", "y", "on", "t")


def read_document(document: Written | None, known: Mapping[str, FieldInfo], *, where: str) -> Layer:
    """The values of the file. Raises ConfigurationError when a section is not a mapping."""
    known = _spell_secret_files(known)
    values: dict[str, Given] = {}
    unknown: list[tuple[str, Origin]] = []
    read_as_false: list[tuple[str, Origin]] = []
    sections = {path[: dot.start()] for path in known for dot in re.finditer(r"\.", path)} | {""}
    pending = [("", document)] if document is not None and document.value is not None else []
    while pending:
        path, written = pending.pop(0)
        origin = Origin(Source.FILE, where, written.line)
        if written.value is None:  # `ai:` or `api_key:` without a value
            continue
        if path in sections:
            pending += _enter(path, written, origin=origin)
        elif path in _SWITCHES and path in known and _is_true_elsewhere(written.value):
            values[path] = Given(_is_on(written.value), origin)
            read_as_false.append((path, origin))
        elif path in known:
            values[path] = Given(_read_value(written, known[path]), origin)
        else:
            unknown.append((path, origin))
    return Layer(_use_secret_files(values, known), tuple(unknown), tuple(read_as_false))


def read_texts(texts: Iterable[tuple[str, str, Origin]], known: Mapping[str, FieldInfo]) -> Layer:
    """The values of flags: path, text, origin. Raises ConfigurationError for an unknown path."""
    known = _spell_secret_files(known)
    values: dict[str, Given] = {}
    for path, text, origin in texts:
        if path not in known:
            raise ConfigurationError(f"{origin.place} {path}: unknown setting; {describe_unknown(path, known)}")
        values[path] = Given(from_text(text, known[path]), origin)
    return Layer(_use_secret_files(values, known))


def _spell_secret_files(known: Mapping[str, FieldInfo]) -> Mapping[str, FieldInfo]:
    """All paths as they may be written."""
    return {**known, **{file: known[path] for file, path in find_secret_files(known).items()}}


def _use_secret_files(values: dict[str, Given], spelled: Mapping[str, FieldInfo]) -> dict[str, Given]:
    """`api_key_file` as a value of `api_key`, so that each layer covers the one below whichever way it is written.

    Raises ConfigurationError where one layer has both.
    """
    for file, path in find_secret_files(spelled).items():
        given = values.pop(file, None)
        if given is None or not str(given.value).strip():
            continue
        if path in values and values[path].value:
            raise ConfigurationError(f"{path} ({values[path].origin}) and {file} are both set: keep one of them")
        values[path] = Given(SecretFile(Path(str(given.value).strip())), given.origin)
    return values


def _enter(path: str, written: Written, *, origin: Origin) -> list[tuple[str, Written]]:
    if written.children is None:
        what = f"{path} ({origin})" if path else origin
        # The value is not repeated: it may be a secret.
        found = "a list" if written.text is None else "a single value"
        raise ConfigurationError(f"{what}: expected keys with values, found {found}")
    return [(f"{path}.{key}" if path else key, child) for key, child in written.children.items()]


def _read_value(written: Written, field: FieldInfo) -> object:
    """The text as written where the setting is text: an API key or a tenant id may consist of digits."""
    if written.children is not None and is_secret(field):
        return {key: child.text for key, child in written.children.items()}
    return written.text if written.text is not None and is_text(field) else written.value


def from_text(text: str, field: FieldInfo) -> object:
    """The value of a flag or a variable: text; for lists and mappings `a,b` or YAML."""
    if not is_collection(field):
        return text.strip()
    try:
        written = parse_yaml(text, where="")
        value = written.value if written else None
    except ConfigurationError:
        value = text
    if isinstance(value, str | int | float):
        return [part.strip() for part in text.split(",") if part.strip()]
    return value
