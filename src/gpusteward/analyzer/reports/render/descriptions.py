"""Names, sentences and notes of a report, in both languages."""

from gpusteward.analyzer.reports.render import quantities
from gpusteward.analyzer.reports.report import Amounts, Finding, Group, Report, Unused, Waster
from gpusteward.core.messages import Language
from gpusteward.messages import reports as messages

COMPLETE_RATIO = 0.99
"""A note is added if the number of GPUs was known for less of the time."""


def name_group(group: Group, language: Language) -> str:
    """The full name of an owner; `(none)` for an empty name."""
    if group.kind == "others":
        return messages.OTHERS.text(language, number=int(group.name))
    if group.kind:
        return _full_name(group.kind, group.namespace, group.name)
    return group.name or messages.NO_NAME.text(language)


def name_workload(one: Waster | Finding) -> str:
    return _full_name(one.kind, one.namespace, one.name)


def _full_name(kind: str, namespace: str, name: str) -> str:
    return f"{namespace}/{kind}/{name}"


def describe_unused(unused: Unused, language: Language) -> str:
    """`37 of 320 GPUs unused (30 idle, 7 unallocated; ...)`."""
    message = messages.UNUSED_IDLE if unused.unallocated is None else messages.UNUSED
    return message.text(
        language,
        unused=unused.unused,
        gpus=unused.gpus,
        idle=unused.idle,
        unallocated=unused.unallocated,
        when=quantities.moment(unused.hour_ms),
    )


def describe_total(total: Amounts, currency: str, language: Language) -> str:
    """Totals that the table may have no space for."""
    hours = messages.GPU_HOURS.text(language)
    texts = {
        messages.COST: _money(total.cost_micros, currency),
        messages.ELECTRICITY: _money(total.electricity_micros, currency),
        messages.UNALLOCATED: f"{quantities.hours(total.unallocated_gpu_ms)} {hours}",
        messages.MEAN_SCORE: quantities.score(total.mean_score),
    }
    known = {label: text for label, text in texts.items() if quantities.UNKNOWN not in text.split()}
    return messages.SEPARATOR.text(language).join(f"{label.text(language)} {text}" for label, text in known.items())


def _money(micros: int | None, currency: str) -> str:
    return f"{quantities.money(micros)} {currency}"


def describe_profile(finding: Finding, language: Language) -> str:
    if finding.part == "mig":
        return f"MIG {finding.profile}"
    return messages.SHARED_PART.text(language, part=finding.profile)


def describe_evidence(finding: Finding) -> str:
    used, total = quantities.gibibytes(finding.memory_peak_bytes), quantities.gibibytes(finding.memory_total_bytes)
    return f"{used.removesuffix(' GiB')} / {total}, {quantities.percent(finding.core_peak_ratio)}"


def list_notes(report: Report, language: Language) -> list[str]:
    """What a reader needs to know to interpret the numbers."""
    covered, total = report.range, report.total
    notes = [messages.NOTE_RANGE.text(language, since=_at(covered.since_ms), until=_at(covered.until_ms))]
    notes += _list_range_notes(report, language)
    notes += _list_currency_notes(report, language)
    if total.unpriced_gpu_ms and not report.currency_changes:
        notes.append(messages.NOTE_UNPRICED.text(language, hours=quantities.hours(total.unpriced_gpu_ms)))
    if total.unknown_gpu_ms:
        notes.append(messages.NOTE_UNKNOWN.text(language))
    notes += _list_fleet_notes(report, language)
    if total.electricity_micros is not None and total.energy_gpu_ms < total.allocated_gpu_ms:
        share = quantities.percent(total.energy_gpu_ms / total.allocated_gpu_ms)
        notes.append(messages.NOTE_PART_ENERGY.text(language, share=share))
    if report.trend:
        trend = report.trend
        notes.append(messages.NOTE_TREND.text(language, since=_at(trend.since_ms), until=_at(trend.until_ms)))
    if report.findings:
        notes.append(messages.NOTE_RIGHT_SIZING.text(language))
    return notes


def _list_range_notes(report: Report, language: Language) -> list[str]:
    covered = report.range
    notes = [messages.NOTE_WIDENED.text(language)] if covered.is_widened else []
    if covered.first_ms is not None and covered.first_ms > covered.since_ms:
        notes.append(messages.NOTE_BEGIN.text(language, first=_at(covered.first_ms)))
    if covered.last_ms is not None and covered.last_ms < covered.until_ms:
        notes.append(messages.NOTE_END.text(language, last=_at(covered.last_ms)))
    return notes


def _list_currency_notes(report: Report, language: Language) -> list[str]:
    return [
        messages.NOTE_CURRENCIES.text(language, before=each.before, after=each.after, at=_at(each.at_ms))
        for each in report.currency_changes
    ]


def _list_fleet_notes(report: Report, language: Language) -> list[str]:
    if report.total.unallocated_gpu_ms is None and report.groups and not report.namespaces:
        return [messages.NOTE_NO_FLEET.text(language)]
    coverage = report.fleet_coverage_ratio
    if coverage is not None and coverage < COMPLETE_RATIO:
        return [messages.NOTE_PART_FLEET.text(language, share=quantities.percent(coverage))]
    return []


def _at(at_ms: int) -> str:
    return quantities.moment(at_ms)
