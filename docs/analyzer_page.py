"""The reference page of the analyzer: its metrics and its settings, from the tables it runs on."""

from collections.abc import Iterable, Sequence
from enum import Enum

from pydantic.fields import FieldInfo

from docs.tables import code, make_page, make_table
from gpusteward.analyzer.settings.fields import allowed, is_secret
from gpusteward.analyzer.settings.layers import PREFIX, SEED_VARIABLES
from gpusteward.analyzer.settings.reading import KNOWN
from gpusteward.core.analyzer_metrics import ANALYZER_METRICS


def write_analyzer_page() -> str:
    """Metrics under gpu-oour's names, own health, and every key of config.yaml."""
    return make_page(
        "The analyzer",
        "## Metrics under gpu-oour's names",
        "One status at a time per GPU: a series of a former status is gone. What could not be measured is absent.",
        _metrics("gpu-oour"),
        "## Metrics of its own health",
        _metrics("analyzer"),
        "## Settings",
        f"Keys of `config.yaml`. Each is also an environment variable: `{PREFIX}` and the key in capitals, with `__` "
        "for the dot; and `--set KEY=VALUE` of `gpusteward serve`. A flag wins over the environment, the environment "
        "over the file, the file over the default. `gpusteward settings` shows what is in force and where it comes "
        "from.",
        make_table(("key", "gpu-oour's variable", "default", "allowed", "what it is"), _settings()),
    )


def _metrics(dialect: str) -> str:
    rows = [
        (f"`{row.name}`", row.kind, code(row.labels), row.help) for row in ANALYZER_METRICS if row.dialect == dialect
    ]
    return make_table(("metric", "type", "labels", "what it is"), rows)


def _settings() -> Iterable[Sequence[str]]:
    old_names = {path: variable for variable, path in SEED_VARIABLES.items()}
    for path, field in KNOWN.items():
        about = (field.description or "").replace("\n", " ")
        yield f"`{path}`", code([old_names.get(path, "")]), _default(field), allowed(field), about


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if is_secret(field) or value in (None, "", (), {}):
        return ""
    return f"`{value.value if isinstance(value, Enum) else value}`"
