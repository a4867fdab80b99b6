"""The reference page of the analyzer: its metrics and settings, from the tables in the code."""

from collections.abc import Iterable, Sequence
from enum import Enum

from pydantic.fields import FieldInfo

from docs.tables import code, make_page, make_table
from gpusteward.analyzer.metrics.analyzer_metrics import ANALYZER_METRICS
from gpusteward.analyzer.settings.effective import KNOWN
from gpusteward.analyzer.settings.fields import describe_allowed, find_secret_files, is_secret
from gpusteward.analyzer.settings.layers import GPU_OOUR_KEYS, GPU_OOUR_VARIABLES
from gpusteward.core.settings import VARIABLE_PREFIX

SECRET_FILES = find_secret_files(KNOWN)


def write_analyzer_page() -> str:
    """Metrics with gpu-oour's names, metrics of its own health, every key of config.yaml, and where the API is."""
    return make_page(
        "The analyzer",
        "## Metrics under gpu-oour's names",
        "One status per GPU at a time: the series of a previous status is removed. Values that could not be "
        "measured are absent.",
        _metrics("gpu-oour"),
        "## Metrics of its own health",
        _metrics("analyzer"),
        "## Settings",
        f"Keys of `config.yaml`. Each is also an environment variable: `{VARIABLE_PREFIX}` and the key in capitals, "
        "with `__` for the dot; and a flag: `gpusteward serve --set KEY=VALUE`. Precedence: flag, environment, "
        "file, default. `gpusteward settings` shows the effective settings and their origin. What there is to choose "
        f"is the first table, {len(KNOWN) - len(GPU_OOUR_KEYS)} keys; the second has those of gpu-oour.",
        "### gpusteward's own",
        make_table(("key", "default", "allowed", "description"), _own_settings()),
        "### gpu-oour's",
        "They have its names and its defaults; its variables are read too.",
        make_table(("key", "gpu-oour's variable", "default", "allowed", "description"), _gpu_oour_settings()),
        "## HTTP API",
        "A running analyzer describes every path at `/docs`, and as an OpenAPI document at `/openapi.json`.",
    )


def _metrics(dialect: str) -> str:
    rows = [
        (f"`{row.name}`", row.kind, code(row.labels), row.help) for row in ANALYZER_METRICS if row.dialect == dialect
    ]
    return make_table(("metric", "type", "labels", "description"), rows)


def _own_settings() -> Iterable[Sequence[str]]:
    for path, field in KNOWN.items():
        if path not in GPU_OOUR_KEYS:
            yield f"`{path}`", *_describe(path, field)


def _gpu_oour_settings() -> Iterable[Sequence[str]]:
    variables = {path: variable for variable, path in GPU_OOUR_VARIABLES.items()}
    for path, field in KNOWN.items():
        if path in GPU_OOUR_KEYS:
            yield f"`{path}`", code([variables.get(path, "")]), *_describe(path, field)


def _describe(path: str, field: FieldInfo) -> Sequence[str]:
    allowed = str(describe_allowed(field))
    if f"{path}_file" in SECRET_FILES:
        allowed += f", or a file: `{path.rpartition('.')[2]}_file`"
    return _default(field), allowed, (field.description or "").replace("\n", " ")


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if is_secret(field) or value in (None, "", (), {}):
        return ""
    return f"`{value.value if isinstance(value, Enum) else value}`"
