"""The table of docs/reclaim-kinds.md and of its Chinese twin, generated from the table of kinds."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from docs.tables import make_table
from gpusteward.analyzer.reclaim.kinds.objects import split_pointer
from gpusteward.analyzer.reclaim.kinds.refusals import list_refusals
from gpusteward.core.kinds import KINDS, NOW, WorkloadKind
from gpusteward.core.messages import Language, Message
from gpusteward.messages.reclaim_kinds import LOSSES

DOCS = Path(__file__).parent
KINDS_PAGES: dict[Path, Language] = {DOCS / "reclaim-kinds.md": "en", DOCS / "zh-CN/reclaim-kinds.md": "zh"}
BEGIN, END = "<!-- written by `make docs` -->\n", "\n<!-- end -->"
HEADER = (
    Message("kind", "类型"),
    Message("API group", "API 组"),
    Message("what is set", "修改"),
    Message("what is lost", "失去"),
    Message("refused, beside what holds for every kind", "拒绝（各类型通用的情况除外）"),
)
ANNOTATION = Message("annotation {field}", "注解 {field}")
SURPLUS = Message(
    "{text}; for surplus replicas `keep`, with `controller.kubernetes.io/pod-deletion-cost` on the longest idle pods",
    "{text}；多余副本则降到 `keep`，并在空闲最久的 Pod 上设置 `controller.kubernetes.io/pod-deletion-cost`",
)
EVICTION = Message("eviction, only with `action: evict`", "驱逐，仅当 `action: evict`")
COMMAND = Message("a Command `{stop}`, to restore `{resume}`", "Command `{stop}`，恢复时为 `{resume}`")
PLACEHOLDERS = {"kind": "KIND", "name": "NAME", "manager": "NAME", "node": "NODE", "phase": "PHASE", "queue": "QUEUE"}


def write_kinds_page(path: Path) -> str:
    """The page with its table as the code has it."""
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + _make_table(KINDS_PAGES[path]) + END + after


def _make_table(language: Language) -> str:
    return make_table([each.text(language) for each in HEADER], _list_rows(language))


def _list_rows(language: Language) -> Iterator[list[str]]:
    """Neighbours of one group that are alike share a row."""
    suspended = [kind for kind in KINDS.values() if kind.loss is not None]
    for (group, *cells), kinds in groupby(suspended, lambda kind: _describe(kind, language)):
        names = ", ".join(kind.name for kind in kinds)
        yield [names.replace(", ", "、") if language == "zh" else names, group, *cells]


def _describe(kind: WorkloadKind, language: Language) -> list[str]:
    assert kind.loss is not None
    refusals = [each.text.text(language, **PLACEHOLDERS) for each in list_refusals(kind)]
    separator = "；" if language == "zh" else "; "
    return [
        f"`{kind.group}`" if kind.group else "",
        _describe_change(kind).text(language),
        LOSSES[kind.loss].text(language),
        separator.join(dict.fromkeys(refusals)),
    ]


def _describe_change(kind: WorkloadKind) -> Message:
    if kind.is_evicted:
        return EVICTION
    if kind.stop is not None and kind.resume is not None:
        return COMMAND.fill(stop=kind.stop.action, resume=kind.resume.action)
    ((pointer, value),) = kind.suspended.items()
    first, *parts = split_pointer(pointer)
    shown = {True: "true", False: "false"}.get(value, value) if isinstance(value, bool) else value
    if first == "metadata":
        text = ANNOTATION.fill(field=f"`{parts[-1]}`" if value == NOW else f'`{parts[-1]}: "{value}"`')
    else:
        text = Message(*[f"`{'.'.join((first, *parts))}: {shown}`"] * 2)
    return SURPLUS.fill(text=text) if kind.has_deletion_cost else text
