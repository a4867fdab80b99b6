"""The week in one message: what the books say, and what is idle now."""

from collections.abc import Iterator, Sequence
from datetime import date

import numpy as np
from sqlalchemy import Engine

from gpusteward.analyzer.notify.amounts import say_gpu_hours, say_money
from gpusteward.analyzer.notify.notices.messages import MessageOptions, name_workload
from gpusteward.analyzer.notify.texts import say
from gpusteward.analyzer.reports.report import Report, ReportQuery, Waster
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import ACTIVITIES
from gpusteward.core.verdicts import Activity

WEEK_MS = 7 * 86_400_000
WASTERS = 5


def read_week(engine: Engine, result: Result, *, namespaces: Sequence[str], now: float) -> Report:
    """What the books say about the last seven days. Raises SourceError when they are out of reach."""
    from gpusteward.analyzer.reports.make_report import make_report  # needed once a week

    now_ms = round(now * 1000)
    query = ReportQuery(now_ms - WEEK_MS, now_ms, by="namespace", namespaces=tuple(namespaces), top=WASTERS, rows=1)
    return make_report(engine, query, prices=result.settings.prices, now_ms=now_ms)


def write_digest(
    report: Report | None, result: Result, *, day: date, namespaces: Sequence[str], options: MessageOptions
) -> str:
    """`report` is None where there are no books; `namespaces` empty: all of them."""
    language = options.language
    lines = [say("digest-title", language, day=day.isoformat())]
    if report is None or not report.total.allocated_gpu_ms:
        lines.append(say("digest-no-books", language))
    else:
        lines += _write_report(report, options)
    return "\n".join([*lines, _write_now(result, namespaces, language)])


def _write_report(report: Report, options: MessageOptions) -> Iterator[str]:
    language, total = options.language, report.total
    yield say(
        "digest-total",
        language,
        allocated=say_gpu_hours(total.allocated_gpu_ms),
        active=say_gpu_hours(total.active_gpu_ms),
        idle=say_gpu_hours(total.idle_gpu_ms),
        unknown=say_gpu_hours(total.unknown_gpu_ms),
    )
    if total.idle_cost_micros is not None:
        yield say("digest-cost", language, cost=say_money(total.idle_cost_micros, report.currency))
    if report.trend is not None and report.trend.idle_change_ratio is not None:
        yield say("digest-trend", language, change=f"{report.trend.idle_change_ratio * 100:+.0f} %")
    if report.wasters:
        yield say("digest-wasters", language)
        yield from (_write_waster(each, report.currency, language) for each in report.wasters)


def _write_waster(waster: Waster, currency: str, language: str) -> str:
    cost = waster.amounts.idle_cost_micros
    return say(
        "digest-line",
        language,
        workload=name_workload(waster.kind, waster.namespace, waster.name),
        idle=say_gpu_hours(waster.amounts.idle_gpu_ms),
        allocated=say_gpu_hours(waster.amounts.allocated_gpu_ms),
        extra="" if cost is None else say("digest-line-cost", language, cost=say_money(cost, currency)),
    )


def _write_now(result: Result, namespaces: Sequence[str], language: str) -> str:
    table, wanted = result.workloads, frozenset(namespaces)
    is_ours = np.array([not wanted or key[1] in wanted for key in table.keys], dtype=bool)
    is_idle = is_ours & (table.activity == ACTIVITIES.index(Activity.IDLE))
    is_partly = is_ours & ~is_idle & (table.idle_gpus > 0)
    gpus = int(table.gpus[is_idle].sum())
    return say("digest-now", language, workloads=int(is_idle.sum()), gpus=gpus, partly=int(is_partly.sum()))
