"""What is missing or wrong in the data, in plain words, the worst first."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from gpusteward.analyzer.api.dependencies import ApiDependencies
from gpusteward.analyzer.api.result_store import PublishedResult
from gpusteward.analyzer.api.v1.gpus.gpus import view_fleet
from gpusteward.analyzer.data_health import MENTIONED_RATIO, find_unknown_reason
from gpusteward.core.gpu_counts import format_gpus
from gpusteward.core.messages import Language, Message
from gpusteward.messages import data_health as messages

Level = Literal["critical", "warning", "info"]
LEVELS: tuple[Level, ...] = ("critical", "warning", "info")
_LEVELS: Mapping[str, Level] = {"degraded": "critical", "warning": "warning", "info": "info"}


@dataclass(frozen=True, slots=True)
class DataProblem:
    """One thing that is missing or wrong."""

    level: Annotated[Level, Field(description="critical: what is shown is old or unknown; info: it may be intended.")]
    code: Annotated[str, Field(description="A word for programs.")]
    text: Annotated[str, Field(description="In the language of the request.")]


class LedgerState(NamedTuple):
    """`reason`: why the ledger could not be read. `begins_at`: when it begins, if that is after the period."""

    reason: str
    begins_at: float | None


class _Found(NamedTuple):
    level: Level
    code: str
    message: Message


def find_problems(
    published: PublishedResult, dependencies: ApiDependencies, ledger: LedgerState, language: Language
) -> list[DataProblem]:
    """Of what the client may see."""
    found = [
        *_find_source_problems(dependencies),
        *_find_gpu_problems(published),
        *_find_ledger_problems(dependencies, ledger),
        *_find_delivery_problems(dependencies),
    ]
    found.sort(key=lambda one: LEVELS.index(one.level))
    return [DataProblem(one.level, one.code, one.message.text(language)) for one in found]


def _find_source_problems(dependencies: ApiDependencies) -> Iterator[_Found]:
    """The findings of /health; GPUs that could not be judged are explained below."""
    for one in dependencies.assess_data().findings:
        if one.code != "unknown-gpus":
            is_critical = one.level == "degraded" or one.code == "result-old"
            yield _Found("critical" if is_critical else _LEVELS[one.level], one.code, one.message)


def _find_gpu_problems(published: PublishedResult) -> Iterator[_Found]:
    result = published.result
    if not len(result.verdicts):
        if not result.verdicts.usage.findings:  # these say why
            yield _Found("info", "no-gpus", messages.NO_GPUS)
        return
    unknown = float(result.workloads.unknown_gpus.sum())
    total = float(result.workloads.fractions.sum())
    if unknown > 0:
        fields = {"gpus": format_gpus(unknown), "total": format_gpus(total), "reason": find_unknown_reason(result)}
        level: Level = "warning" if unknown > MENTIONED_RATIO * total else "info"
        yield _Found(level, "unknown-gpus", messages.UNKNOWN_GPUS.fill(**fields))
    if view_fleet(published).gpus is None and result.visible is None:
        yield _Found("info", "gpus-not-counted", messages.GPUS_NOT_COUNTED)
    if np.isnan(result.cost_micros_per_hour).all():
        yield _Found("info", "no-price", messages.NO_PRICE)


def _find_ledger_problems(dependencies: ApiDependencies, ledger: LedgerState) -> Iterator[_Found]:
    described = dependencies.describe_ledger()
    error = ledger.reason or str((described or {}).get("error") or "")
    if not dependencies.settings.current.ledger.enabled:
        yield _Found("info", "ledger-disabled", messages.LEDGER_DISABLED)
    elif error:
        yield _Found("warning", "ledger-failed", messages.LEDGER_FAILED.fill(reason=error))
    elif ledger.begins_at is not None:
        since = datetime.fromtimestamp(ledger.begins_at, UTC).strftime("%Y-%m-%d %H:%M")
        yield _Found("info", "ledger-short", messages.LEDGER_SHORT.fill(since=since))


def _find_delivery_problems(dependencies: ApiDependencies) -> Iterator[_Found]:
    described = dependencies.describe_deliveries()
    failures = described.get("failures") or {}
    reason = described.get("fault") or "; ".join(f"{target}: {why}" for target, why in sorted(failures.items())[:3])
    if reason:
        yield _Found("warning", "deliveries-failed", messages.DELIVERIES_FAILED.fill(reason=reason))
