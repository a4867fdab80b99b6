"""What `idle` and `top` add to workloads: the cost of the last seven days from the ledger, and what reclaim will do."""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpusteward.cli.api.client import Client, StatusError
from gpusteward.cli.api.workloads import WorkloadReference, name_of
from gpusteward.cli.json_access import Row
from gpusteward.cli.output import quantities
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Language, Message

IN_TIME = Message("in {duration}", "{duration} 后")

REPORT_PATH = "/api/v1/reports"
REFRESH_SECONDS = 300.0
QUERY = (("by", "workload"), ("since", "7d"), ("rows", "10000"), ("top", "0"))


@dataclass(frozen=True, slots=True)
class IdleCosts:
    """Millionths of the currency by workload; one that is missing has no price."""

    currency: str = ""
    micros: Mapping[WorkloadReference, float] = field(default_factory=dict)


def read_idle_costs(client: Client) -> IdleCosts:
    """Empty without a ledger or prices."""
    try:
        report = client.read(REPORT_PATH, QUERY)
    except SourceError:
        return IdleCosts()
    micros = {name_of(each): each.object("amounts").number("idle_cost_micros") for each in report.objects("groups")}
    return IdleCosts(report.text("currency"), {name: each for name, each in micros.items() if each is not None})


class IdleCostCache:
    """Costs of the last week for a screen that is refreshed often: read at most every five minutes."""

    def __init__(self, client: Client, *, waits: bool) -> None:
        self._client = client
        self._waits = waits
        self._lock = threading.Lock()
        self._costs = IdleCosts()
        self._read_at: float | None = None

    def add_to(self, rows: Sequence[Row]) -> list[Row]:
        """The rows with `idle_cost_micros_7d` and `currency_7d`; None where it is unknown or not read yet."""
        with self._lock:
            is_due = self._read_at is None or time.monotonic() - self._read_at >= REFRESH_SECONDS
            self._read_at = time.monotonic() if is_due else self._read_at
        if is_due and self._waits:
            self._read()
        elif is_due:
            threading.Thread(target=self._read, daemon=True).start()
        micros, currency = self._costs.micros, self._costs.currency
        return [Row(row, idle_cost_micros_7d=micros.get(name_of(row)), currency_7d=currency) for row in rows]

    def _read(self) -> None:
        self._costs = read_idle_costs(self._client)


PLAN_PATH = "/api/v1/plan"
PLAN_QUERY = [("limit", "1000"), *(("outcome", each) for each in ("act", "warn", "wait"))]
NOT_PLANNED: Mapping[str, object] = {"next": "", "next_action": None, "next_outcome": None, "next_at": None}


def read_plans(client: Client, only: WorkloadReference | None = None) -> dict[WorkloadReference, Row]:
    """The decisions after which something happens by itself; none in mode off, and where the analyzer has no plan."""
    try:
        page = client.read(PLAN_PATH, [*PLAN_QUERY, *(only.filters if only else ())])
    except StatusError:  # an older analyzer
        return {}
    return {name_of(each): each for each in page.objects("items")}


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """What the plan says about one workload, beside its verdict; nothing in mode off."""

    refusals: Sequence[str] = ()  # why reclaim refuses it, although it would act on it otherwise
    also_stops: Sequence[str] = ()  # pods without GPUs that an action stops, with what they use of their hosts


def read_plan_facts(client: Client, workload: WorkloadReference, language: Language) -> PlanFacts:
    query = [*workload.filters, *(("outcome", each) for each in ("act", "warn", "wait", "refuse"))]
    try:
        decisions = client.read(PLAN_PATH, [*query, ("language", language)]).objects("items")
    except StatusError:  # an older analyzer
        return PlanFacts()
    answers = [(each, answer) for each in decisions for answer in each.objects("answers")]
    return PlanFacts(
        [
            answer.text("reason")
            for each, answer in answers
            if each.text("outcome") == "refuse" and answer.get("passed") is False
        ],
        [
            answer.text("reason")
            for each, answer in answers
            if answer.text("guard") == "other_pods" and each.objects("other_pods") and answer.get("passed")
        ],
    )


def describe_due(decision: Row, language: Language, *, now: float) -> str:
    """`in 12m`; empty if no time is known."""
    due = decision.time("due_at")
    if due is None:
        return ""
    return (Message("now", "现在") if due <= now else IN_TIME).text(language, duration=quantities.duration(due - now))


def describe_plan(decision: Row | None, language: Language) -> Mapping[str, object]:
    """`suspend in 12m`, and the same for programs."""
    if decision is None:
        return NOT_PLANNED
    action, when = decision.text("action"), describe_due(decision, language, now=time.time())
    return {
        "next": f"{action} {when}".strip(),
        "next_action": action or None,
        "next_outcome": decision.text("outcome") or None,
        "next_at": decision.text("due_at") or None,
    }
