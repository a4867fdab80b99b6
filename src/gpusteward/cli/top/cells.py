"""What is written into the cells of the views, and how it is shortened where the column is narrow."""

from collections.abc import Callable, Iterator, Sequence

from gpusteward.cli.api.workloads import SHORT_KINDS, WorkloadName, name_of
from gpusteward.cli.json_access import Row, get_count, get_number, get_objects, get_text, get_texts, get_time
from gpusteward.cli.output import quantities
from gpusteward.cli.output.terminal_text import clean, cut_middle, measure
from gpusteward.cli.output.verdict_labels import FREE, translate
from gpusteward.cli.top.source_protocol import SHOWS_CLUSTER
from gpusteward.core.messages import Language
from gpusteward.messages.cli import top as messages
from gpusteward.messages.verdicts import ACTIVITIES, PROOFS, SIGNATURES

MIN_WIDE = 28  # cells; a narrower column uses short names in all rows
Write = Callable[[Row, Language], str]
Fit = Callable[[Row, Language, int], str]
Total = Callable[[Sequence[Row]], str]
GPU_ACTIVITIES = {**ACTIVITIES, "free": FREE}


def write_text(key: str) -> Write:
    return lambda row, _: get_text(row, key) or quantities.UNKNOWN


def _place_in_cluster(row: Row, key: str) -> str:
    text = get_text(row, key) or quantities.UNKNOWN
    return f"{get_text(row, 'cluster')}/{text}" if row.get(SHOWS_CLUSTER) else text


def write_in_cluster(key: str) -> Write:
    return lambda row, _: _place_in_cluster(row, key)


def fit_in_cluster(key: str) -> Fit:
    return lambda row, _, width: cut_middle(_place_in_cluster(row, key), width)


def write_count(key: str) -> Write:
    return lambda row, _: str(get_count(row, key))


def write_number(key: str, show: Callable[[float | None], str]) -> Write:
    return lambda row, _: show(get_number(row, key))


def write_activity(row: Row, language: Language) -> str:
    return translate(GPU_ACTIVITIES, get_text(row, "activity"), language)


def write_signature(row: Row, language: Language) -> str:
    return translate(SIGNATURES, get_text(row, "signature"), language)


def write_proof(row: Row, language: Language) -> str:
    return translate(PROOFS, get_text(row, "proof"), language)


def write_model(row: Row, _: Language) -> str:
    return get_text(row, "model").removeprefix("NVIDIA ") or quantities.UNKNOWN


def write_gpu(row: Row, _: Language) -> str:
    if get_text(row, "activity") == "free":
        return quantities.UNKNOWN
    index, instance = get_text(row, "index"), get_text(row, "instance")
    return f"{index}/{instance}" if instance else index or get_text(row, "id")


def write_idle_share(row: Row, _: Language) -> str:
    return "/".join(quantities.gpus(get_number(row, key)) for key in ("idle_gpus", "gpus"))


def write_idle_time(row: Row, _: Language) -> str:
    began, at = get_time(row, "idle_since"), get_number(row, "at")
    return quantities.UNKNOWN if began is None or at is None else quantities.duration(at - began)


def write_gpus(key: str) -> Write:
    return lambda row, _: quantities.gpus(get_number(row, key))


def sum_gpus(*keys: str) -> Total:
    return lambda rows: "/".join(quantities.gpus(sum(get_number(row, key) or 0 for row in rows)) for key in keys)


def write_money(key: str, currency: str = "currency") -> Write:
    return lambda row, _: quantities.money(get_number(row, key), get_text(row, currency))


def sum_money(key: str, currency: str = "currency") -> Total:
    """Of the rows with a known cost."""

    def total(rows: Sequence[Row]) -> str:
        known = [(amount, get_text(row, currency)) for row in rows if (amount := get_number(row, key)) is not None]
        return quantities.money(sum(amount for amount, _ in known), known[0][1]) if known else quantities.UNKNOWN

    return total


def sum_counts(key: str) -> Total:
    return lambda rows: str(sum(get_count(row, key) for row in rows))


def write_names(key: str) -> Write:
    return lambda row, _: quantities.first_name(
        [name.removeprefix("NVIDIA ") for name in get_texts(row, key)], get_count(row, f"{key}_total")
    )


def _name_shown(row: Row) -> WorkloadName:
    """With the cluster only where there are several."""
    return name_of(row) if row.get(SHOWS_CLUSTER) else name_of(row)._replace(cluster="")


def write_full_name(row: Row, _: Language) -> str:
    return str(_name_shown(row))


def fit_full_name(row: Row, _: Language, width: int) -> str:
    """A shorter form that `explain` accepts too, else the beginning and the end."""
    name = _name_shown(row)
    short = name._replace(kind=SHORT_KINDS.get(name.kind, name.kind))
    shortest = clean(f"{name.namespace}/{name.name}")
    return next((form for form in (str(name), str(short), shortest) if measure(form) <= width), "") or cut_middle(
        shortest, width
    )


def write_workload(row: Row, _: Language) -> str:
    return f"{get_text(row, 'kind')}/{get_text(row, 'name')}"


def fit_workload(row: Row, _: Language, width: int) -> str:
    """The name, followed by its kind if that fits."""
    kind, name = get_text(row, "kind"), get_text(row, "name")
    fitting = (f"{name} ({word})" for word in (kind, SHORT_KINDS.get(kind, kind)) if word)
    return next((each for each in fitting if measure(each) <= width), cut_middle(name, width))


def write_holders(row: Row, language: Language) -> str:
    """In a row of free GPUs: their number."""
    if get_text(row, "activity") == "free":
        return messages.FREE_GPUS.text(language, count=get_count(row, "gpus"))
    return (
        ", ".join(f"{get_text(one, 'namespace')}/{get_text(one, 'pod')}" for one in get_objects(row, "holders"))
        or quantities.UNKNOWN
    )


def fit_holders(row: Row, language: Language, width: int) -> str:
    """As many pods as fit, and the number of others; without namespaces in a narrow column."""
    holders = get_objects(row, "holders")
    if not holders:
        return write_holders(row, language)
    pods = [get_text(one, "pod") for one in holders]
    placed = [f"{get_text(one, 'namespace')}/{get_text(one, 'pod')}" for one in holders] if width >= MIN_WIDE else []
    fitting = (line for names in (placed, pods) for line in _shorten(names) if measure(line) <= width)
    return next(fitting, _cut_first(pods, width))


def _shorten(names: Sequence[str]) -> Iterator[str]:
    for shown in range(len(names), 0, -1):
        more = f" +{len(names) - shown}" if shown < len(names) else ""
        yield ", ".join(names[:shown]) + more


def _cut_first(pods: Sequence[str], width: int) -> str:
    more = f" +{len(pods) - 1}" if len(pods) > 1 else ""
    return cut_middle(pods[0], width - len(more)) + more
