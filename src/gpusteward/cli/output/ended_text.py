"""A workload that has ended, as the ledger has it."""

from collections.abc import Iterator

from gpusteward.cli.json_access import Row, get_count, get_number, get_object, get_text, get_texts
from gpusteward.cli.output import quantities
from gpusteward.cli.output.paragraphs import Line
from gpusteward.core.messages import Language
from gpusteward.messages.cli import workloads as messages

HOUR_MS = 3_600_000


def describe_ended(ended: Row, language: Language, *, now: float) -> Iterator[Line]:
    amounts, first, end = get_object(ended, "amounts"), _seconds(ended, "first_ms"), _seconds(ended, "ended_ms")
    yield Line(_describe_end(end, language, now=now), messages.ENDED.text(language))
    length = quantities.UNKNOWN if first is None or end is None else quantities.duration(end - first)
    held = messages.HELD_TEXT.text(
        language, devices=get_count(ended, "devices"), at=quantities.local_time(first), length=length
    )
    yield Line(held, messages.HELD.text(language))
    hours = {key: quantities.hours(_hours(amounts, key)) for key in ("allocated", "active", "idle", "unknown")}
    ratio = quantities.percent(_ratio(amounts))
    yield Line(messages.GPU_HOURS_TEXT.text(language, ratio=ratio, **hours), messages.GPU_HOURS.text(language))
    yield Line(_describe_cost(amounts, get_text(ended, "currency"), language), messages.COST.text(language))
    for key, title in (("users", messages.USER), ("models", messages.MODEL), ("nodes", messages.NODES)):
        yield Line(", ".join(get_texts(ended, key)) or quantities.UNKNOWN, title.text(language))


def _describe_end(end: float | None, language: Language, *, now: float) -> str:
    if end is None:
        return messages.END_NOT_RECORDED.text(language)
    return messages.ENDED_TEXT.text(language, at=quantities.local_time(end), length=quantities.duration(now - end))


def _describe_cost(amounts: Row, currency: str, language: Language) -> str:
    parts = [get_number(amounts, f"{key}_cost_micros") for key in ("active", "idle", "unknown")]
    if any(part is None for part in parts):
        return quantities.UNKNOWN
    total, idle = (quantities.money(amount, currency) for amount in (sum(part or 0 for part in parts), parts[1]))
    return messages.COST_TEXT.text(language, total=total, idle=idle)


def _seconds(row: Row, key: str) -> float | None:
    at = get_number(row, key)
    return None if at is None else at / 1000


def _hours(amounts: Row, key: str) -> float | None:
    gpu_ms = get_number(amounts, f"{key}_gpu_ms")
    return None if gpu_ms is None else gpu_ms / HOUR_MS


def _ratio(amounts: Row) -> float | None:
    allocated, idle = _hours(amounts, "allocated"), _hours(amounts, "idle")
    return idle / allocated if allocated and idle is not None else None
