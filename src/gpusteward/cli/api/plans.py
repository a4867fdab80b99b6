"""What reclaim will do with workloads, for `idle` and `top`."""

import time
from collections.abc import Mapping

from gpusteward.cli.api.client import Client
from gpusteward.cli.api.errors import StatusError
from gpusteward.cli.api.workloads import WorkloadName, name_of
from gpusteward.cli.json_access import Row, as_object, get_objects, get_text, get_time
from gpusteward.cli.output import quantities
from gpusteward.core.messages import Language
from gpusteward.messages.cli import reclaim as messages

PATH = "/api/v1/plan"
QUERY = [("limit", "1000"), *(("outcome", each) for each in ("act", "warn", "wait"))]
NOT_PLANNED: Mapping[str, object] = {"next": "", "next_action": None, "next_outcome": None, "next_at": None}


def read_plans(client: Client, only: WorkloadName | None = None) -> dict[WorkloadName, Row]:
    """The decisions after which something happens by itself; none in mode off, and where the analyzer has no plan."""
    try:
        page = as_object(client.read(PATH, [*QUERY, *(_select(only) if only else ())]))
    except StatusError:  # an older analyzer
        return {}
    return {name_of(each): each for each in get_objects(page, "items")}


def _select(name: WorkloadName) -> list[tuple[str, str]]:
    return [("kind", name.kind), ("namespace", name.namespace), ("name", name.name), *name.query]


def describe_plan(decision: Row | None, language: Language, *, now: float | None = None) -> Mapping[str, object]:
    """`suspend in 12m`, and the same for programs."""
    if decision is None:
        return NOT_PLANNED
    now = time.time() if now is None else now
    action, due = get_text(decision, "action"), get_time(decision, "due_at")
    when = ""
    if due is not None:
        length = quantities.duration(due - now)
        when = (messages.NOW if due <= now else messages.IN_TIME).text(language, duration=length)
    return {
        "next": f"{action} {when}".strip(),
        "next_action": action or None,
        "next_outcome": get_text(decision, "outcome") or None,
        "next_at": get_text(decision, "due_at") or None,
    }
