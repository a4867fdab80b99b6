"""What is wrong with a GPU, from its last readings."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from gpusteward.analyzer.sources.live_readings import ReportedGpu
from gpusteward.core.messages import Language, Message
from gpusteward.messages import gpu_errors as messages

Level = Literal["critical", "warning", "info"]


@dataclass(frozen=True, slots=True)
class GpuError:
    """Something that is wrong with a GPU."""

    level: Level
    code: Annotated[str, Field(description="xid-79, lost, row-remap-failure and so on.")]
    count: Annotated[int | None, Field(description="Since the exporter or the driver started; null: unknown.")]
    text: Annotated[str, Field(description="What it means, in the language of the request.")]


_Found = tuple[Level, str, int | None, Message]


def find_errors(reading: ReportedGpu, *, language: Language) -> list[GpuError]:
    """The worst first."""
    found = [*_find_memory_errors(reading.values), *_find_xids(reading)]
    if reading.values.get("up") == 0:
        found.append(("critical", "lost", None, messages.LOST))
    found.sort(key=lambda each: ("critical", "warning", "info").index(each[0]))
    return [GpuError(level, code, count, text.text(language)) for level, code, count, text in found]


def _find_memory_errors(values: Mapping[str, float]) -> Iterator[_Found]:
    if values.get("row_remap_failure"):
        yield "critical", "row-remap-failure", None, messages.ROW_REMAP_FAILURE
    if values.get("row_remap_pending"):
        yield "warning", "row-remap-pending", None, messages.ROW_REMAP_PENDING
    if count := round(values.get("ecc_double_bit_errors", 0)):
        yield "warning", "ecc-double-bit", count, messages.DOUBLE_BIT_ERRORS.fill(count=count)
    if count := round(values.get("uncorrectable_remapped_rows", 0)):
        yield "info", "remapped-rows", count, messages.REMAPPED_ROWS.fill(count=count)


def _find_xids(reading: ReportedGpu) -> Iterator[_Found]:
    counts: dict[int, int | None] = dict(reading.xid_errors)
    if last := round(reading.values.get("last_xid", 0)):
        counts.setdefault(last, None)
    for code, count in sorted(counts.items()):
        level: Level = "critical" if code in messages.CRITICAL_XIDS else "warning"
        template = messages.XID if count in (None, 1) else messages.XID_TIMES
        text = template.fill(code=code, count=count or 0, meaning=messages.explain_xid(code))
        yield level, f"xid-{code}", count, text
