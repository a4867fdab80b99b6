"""The weekly digest: GPU-hours recorded in the ledger, and workloads that are idle now."""

from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta

import numpy as np
from sqlalchemy import Engine

from gpusteward.analyzer.notify.notices.formatting import format_gpu_hours, format_money
from gpusteward.analyzer.notify.notices.messages import MessageOptions, name_workload, write_as_of
from gpusteward.analyzer.reports.report import Report, Waster
from gpusteward.analyzer.reports.report_query import ReportQuery
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.setting_values import read_weekly, read_zone
from gpusteward.analyzer.tables import ACTIVITIES
from gpusteward.core.gpu_counts import format_gpus
from gpusteward.core.messages import Language
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.core.verdicts import Activity
from gpusteward.messages import notices as messages

WEEK_MS = 7 * 86_400_000
TOP_WORKLOADS = 5


def read_week(engine: Engine, result: Result, *, namespaces: Sequence[str], now: float) -> Report:
    """The report of the last seven days. Raises SourceError when the ledger cannot be read."""
    from gpusteward.analyzer.reports.make_report import make_report  # needed once a week

    now_ms = round(now * 1000)
    query = ReportQuery(
        now_ms - WEEK_MS, now_ms, by="namespace", namespaces=tuple(namespaces), top=TOP_WORKLOADS, rows=1
    )
    return make_report(engine, query, prices=result.settings.prices, now_ms=now_ms)


def write_digest(
    report: Report | None, result: Result, *, day: date, namespaces: Sequence[str], options: MessageOptions
) -> str:
    """`report` is None without a ledger; empty `namespaces` means all of them."""
    language = options.language
    lines = [messages.DIGEST_TITLE.text(language, day=day.isoformat()), write_as_of(result.at, options)]
    if report is None or not report.total.allocated_gpu_ms:
        lines.append(messages.DIGEST_EMPTY.text(language))
    else:
        lines += _write_report(report, options)
    return "\n".join([*lines, _write_idle_workloads(result, namespaces, language)])


def _write_report(report: Report, options: MessageOptions) -> Iterator[str]:
    total, language = report.total, options.language
    yield messages.DIGEST_TOTAL.text(
        language,
        allocated=format_gpu_hours(total.allocated_gpu_ms),
        active=format_gpu_hours(total.active_gpu_ms),
        idle=format_gpu_hours(total.idle_gpu_ms),
        unknown=format_gpu_hours(total.unknown_gpu_ms),
    )
    if total.idle_cost_micros is not None:
        yield messages.DIGEST_COST.text(language, cost=format_money(total.idle_cost_micros, report.currency))
    if report.trend is not None and report.trend.idle_change_ratio is not None:
        yield messages.DIGEST_TREND.text(language, change=f"{report.trend.idle_change_ratio * 100:+.0f} %")
    if report.wasters:
        yield messages.DIGEST_TOP.text(language)
        yield from (_write_waster(each, report.currency, options) for each in report.wasters)


def _write_waster(waster: Waster, currency: str, options: MessageOptions) -> str:
    amounts, language = waster.amounts, options.language
    cost = amounts.idle_cost_micros
    return messages.DIGEST_LINE.text(
        language,
        workload=name_workload(WorkloadKey(waster.kind, waster.namespace, waster.name, waster.cluster), options),
        idle=format_gpu_hours(amounts.idle_gpu_ms),
        allocated=format_gpu_hours(amounts.allocated_gpu_ms),
        details="" if cost is None else messages.DIGEST_LINE_COST.text(language, cost=format_money(cost, currency)),
    )


def _write_idle_workloads(result: Result, namespaces: Sequence[str], language: Language) -> str:
    table, selected = result.workloads, frozenset(namespaces)
    is_selected = np.array([not selected or key.namespace in selected for key in table.keys], dtype=bool)
    is_idle = is_selected & (table.activity == ACTIVITIES.index(Activity.IDLE))
    is_partly_idle = is_selected & ~is_idle & (table.idle_gpus > 0)
    return messages.DIGEST_NOW.text(
        language,
        workloads=int(is_idle.sum()),
        gpus=format_gpus(float(table.gpus[is_idle].sum())),
        partly=int(is_partly_idle.sum()),
    )


MAX_DIGEST_DELAY = timedelta(hours=12)
"""A digest that could not be sent within this time is skipped: on Thursday the previous week is no longer news."""


def find_due_digest(at: float, weekly: str, zone: str) -> date | None:
    """The day of the digest that is due at this time; None when none is due."""
    when = read_weekly(weekly)
    if when is None:
        return None
    day, hour = when
    now = datetime.fromtimestamp(at, read_zone(zone))
    last = now.date() - timedelta(days=(now.weekday() - day) % 7)
    due = datetime.combine(last, hour, now.tzinfo)
    if due > now:
        due -= timedelta(days=7)
    return due.date() if now - due < MAX_DIGEST_DELAY else None
