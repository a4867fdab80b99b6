"""Names, sentences and notes of a report, in both languages."""

from collections.abc import Iterable, Sequence
from itertools import chain

from gpusteward.analyzer.reports.render import quantities
from gpusteward.analyzer.reports.report import Amounts, Finding, Group, Report, Unused, Waster
from gpusteward.analyzer.reports.report_query import find_grouping, find_label
from gpusteward.core.messages import Language, Message
from gpusteward.messages import reports as messages

COMPLETE_RATIO = 0.99
"""A note is added if the number of GPUs was known for less of the time."""
MENTION_END_MS = 15 * 60_000
"""Three default intervals: if the last record is older at the end of the period, that is said."""
_MOST_WASTEFUL = 3


def name_grouping(report: Report) -> Message:
    """`by namespace`."""
    label = find_label(report.by)
    return messages.name_label(label) if label else messages.GROUPED_BY[find_grouping(report.by)]


def title_groups(report: Report) -> Message:
    """The title of the column with the names of the groups."""
    label = find_label(report.by)
    return Message(label, label) if label else messages.GROUP_TITLES[find_grouping(report.by)]


def write_token_cost(amounts: Amounts, language: Language) -> str:
    """Per million tokens; without tokens it has no value, however long the server was kept."""
    if amounts.tokens == 0:
        return messages.NO_TOKENS.text(language)
    return quantities.money(amounts.cost_per_million_tokens_micros)


def describe_period(report: Report, language: Language) -> str:
    is_now = report.range.until_ms == report.made_ms
    message = messages.PERIOD_UNTIL_NOW if is_now else messages.PERIOD
    return message.text(
        language, since=quantities.moment(report.range.since_ms), until=quantities.moment(report.range.until_ms)
    )


def describe_recorded(report: Report, language: Language) -> str:
    """The time of the last recorded cycle of the period; empty if nothing is recorded."""
    covered = report.range
    if covered.last_ms is None:
        return ""
    is_behind = covered.last_ms < covered.until_ms - MENTION_END_MS
    message = messages.RECORDED_UNTIL if is_behind else messages.AS_OF
    return message.text(language, clock=quantities.clock(covered.last_ms, now_ms=report.made_ms))


def list_waste(report: Report, language: Language) -> list[str]:
    """What was wasted, by whom, and what was not allocated."""
    total = report.total
    if total.idle_gpu_ms:
        hours = messages.IDLE_HOURS.text(language, hours=quantities.hours(total.idle_gpu_ms))
        amount = _join_amount(total.idle_cost_micros, hours, report.currency, language)
        lines = [messages.WASTED.text(language, amount=amount, share=quantities.percent(total.idle_ratio))]
    else:
        lines = [messages.NOTHING_WASTED.text(language)]
    names = _name_most_wasteful(report, language)
    if names:
        lines.append(messages.WASTED_BY.text(language, names=messages.COMMA.text(language).join(names)))
    if total.unallocated_gpu_ms is not None:
        hours = messages.HOURS.text(language, hours=quantities.hours(total.unallocated_gpu_ms))
        amount = _join_amount(total.unallocated_cost_micros, hours, report.currency, language)
        lines.append(messages.UNALLOCATED_TIME.text(language, amount=amount))
    return lines


def _join_amount(cost_micros: int | None, hours: str, currency: str, language: Language) -> str:
    """Money first, if there is a price."""
    return messages.COMMA.text(language).join([*([_money(cost_micros, currency)] if cost_micros else []), hours])


def _name_most_wasteful(report: Report, language: Language) -> list[str]:
    """Groups, or workloads in a report by day."""
    rows: Sequence[Group | Waster] = report.wasters if find_grouping(report.by) == "day" else report.groups
    named = []
    for row in [row for row in rows if row.amounts.idle_gpu_ms][:_MOST_WASTEFUL]:
        name = name_workload(row, report) if isinstance(row, Waster) else name_group(row, report, language)
        named.append(f"{name} ({_format_idle(row.amounts, report.currency)})")
    return named


def _format_idle(amounts: Amounts, currency: str) -> str:
    """Money where there is a price, else hours."""
    if amounts.idle_cost_micros:
        return _money(amounts.idle_cost_micros, currency)
    return f"{quantities.hours(amounts.idle_gpu_ms)} h"


def name_group(group: Group, report: Report, language: Language) -> str:
    """The full name of a workload; `(none)` for an empty name; a partial day is marked."""
    if group.kind == "others":
        return messages.OTHERS.text(language, number=int(group.name))
    if group.kind:
        return name_workload(group, report)
    missing = messages.NO_NAMES.get(find_grouping(report.by), messages.NO_NAME)
    name = group.name or missing.text(language)
    mark = messages.PARTIAL_MARK if group.is_partial else ""
    return f"{'' if find_grouping(report.by) == 'cluster' else _name_cluster(group, report)}{name}{mark}"


def name_workload(one: Group | Waster | Finding, report: Report) -> str:
    return f"{_name_cluster(one, report)}{one.namespace}/{one.kind}/{one.name}"


def _name_cluster(one: Group | Waster | Finding, report: Report) -> str:
    """In front of a name, where the report has several clusters."""
    rows: Iterable[Group | Waster | Finding] = chain(report.groups, report.wasters, report.findings)
    is_only = not any(each.cluster not in ("", one.cluster) for each in rows)
    return "" if is_only or not one.cluster else f"{one.cluster}/"


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
    texts = {
        messages.COST: _money(total.cost_micros, currency),
        messages.ELECTRICITY: _money(total.electricity_micros, currency),
        messages.MEAN_SCORE: quantities.score(total.mean_score),
    }
    if total.ineffective_gpu_ms:
        hours = messages.HOURS.text(language, hours=quantities.hours(total.effective_gpu_ms))
        texts = {messages.EFFECTIVE: hours, **texts}
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
    notes = [messages.NOTE_PARTIAL.text(language)] if any(group.is_partial for group in report.groups) else []
    notes += [
        messages.NOTE_RANGE.text(
            language, since=quantities.moment(covered.since_ms), until=quantities.moment(covered.until_ms)
        )
    ]
    if covered.is_widened:
        notes.append(messages.NOTE_WIDENED.text(language))
    if covered.first_ms is not None and covered.first_ms > covered.since_ms:
        notes.append(messages.NOTE_BEGIN.text(language, first=quantities.moment(covered.first_ms)))
    for change in report.currency_changes:
        at = quantities.moment(change.at_ms)
        notes.append(messages.NOTE_CURRENCIES.text(language, before=change.before, after=change.after, at=at))
    if total.unallocated_cost_micros is not None:
        notes.append(messages.NOTE_UNALLOCATED_COST.text(language))
    if total.unpriced_gpu_ms and not report.currency_changes:
        notes.append(messages.NOTE_UNPRICED.text(language, hours=quantities.hours(total.unpriced_gpu_ms)))
    if total.unknown_gpu_ms:
        notes.append(messages.NOTE_UNKNOWN.text(language))
    if total.ineffective_gpu_ms:
        notes.append(messages.NOTE_EFFECTIVE.text(language))
    coverage = report.fleet_coverage_ratio
    if total.unallocated_gpu_ms is None and report.groups and not report.namespaces:
        notes.append(messages.NOTE_NO_FLEET.text(language))
    elif coverage is not None and coverage < COMPLETE_RATIO:
        notes.append(messages.NOTE_PART_FLEET.text(language, share=quantities.percent(coverage)))
    if total.electricity_micros is not None and total.energy_gpu_ms < total.allocated_gpu_ms:
        share = quantities.percent(total.energy_gpu_ms / total.allocated_gpu_ms)
        notes.append(messages.NOTE_PART_ENERGY.text(language, share=share))
    if report.trend:
        trend = report.trend
        notes.append(
            messages.NOTE_TREND.text(
                language, since=quantities.moment(trend.since_ms), until=quantities.moment(trend.until_ms)
            )
        )
    if report.findings:
        notes.append(messages.NOTE_RIGHT_SIZING.text(language))
    return notes
