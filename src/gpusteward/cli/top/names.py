"""Names of workloads and holders in few cells: what tells them apart comes first, and stays when they are cut."""

from collections.abc import Iterator, Mapping, Sequence

from gpusteward.cli.json_access import Row, count, each, text
from gpusteward.cli.output.quantities import UNKNOWN
from gpusteward.cli.output.terminal_text import cut_middle, measure
from gpusteward.core.messages import Language, Message

SHORT_KINDS: Mapping[str, str] = {
    "Deployment": "deploy",
    "StatefulSet": "sts",
    "DaemonSet": "ds",
    "ReplicaSet": "rs",
    "ReplicationController": "rc",
    "CronJob": "cj",
}
"""As kubectl has them."""
WIDE = 28  # cells of a column; in a narrower one all rows are written in the short way, whether they need it or not
FREE_GPUS = Message("{count} {count:|GPU|GPUs}", "{count} 张")


def write_workload(row: Row, _: Language) -> str:
    return f"{text(row, 'kind')}/{text(row, 'name')}"


def fit_workload(row: Row, _: Language, width: int) -> str:
    """The name; its kind behind it as far as there is room."""
    kind, name = text(row, "kind"), text(row, "name")
    fitting = (f"{name} ({word})" for word in (kind, SHORT_KINDS.get(kind, kind)) if word)
    return next((each for each in fitting if measure(each) <= width), cut_middle(name, width))


def write_holders(row: Row, language: Language) -> str:
    """In the row of free GPUs how many there are."""
    if text(row, "activity") == "free":
        return FREE_GPUS.text(language, count=count(row, "gpus"))
    return ", ".join(f"{text(one, 'namespace')}/{text(one, 'pod')}" for one in each(row, "holders")) or UNKNOWN


def fit_holders(row: Row, language: Language, width: int) -> str:
    """As many pods as there is room for, and how many more there are; in a narrow column without their namespaces."""
    holders = each(row, "holders")
    if not holders:
        return write_holders(row, language)
    pods = [text(one, "pod") for one in holders]
    placed = [f"{text(one, 'namespace')}/{text(one, 'pod')}" for one in holders] if width >= WIDE else []
    fitting = (line for names in (placed, pods) for line in _shorten(names) if measure(line) <= width)
    return next(fitting, _cut_first(pods, width))


def _shorten(names: Sequence[str]) -> Iterator[str]:
    for shown in range(len(names), 0, -1):
        more = f" +{len(names) - shown}" if shown < len(names) else ""
        yield ", ".join(names[:shown]) + more


def _cut_first(pods: Sequence[str], width: int) -> str:
    more = f" +{len(pods) - 1}" if len(pods) > 1 else ""
    return cut_middle(pods[0], width - len(more)) + more
