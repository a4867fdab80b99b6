"""The seven questions: methods of `Questions`, whose names, docstrings and parameters are what an assistant is told."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from urllib.parse import quote

from pydantic import Field

from gpusteward.questions.answers import Answer, Row, make_answer, show

KEY = "cluster kind namespace name"
WORKLOAD = (
    f"{KEY} users models nodes verdict signature proof highest_step gpus idle_gpus unknown_gpus idle_since "
    "idle_cost_micros cost_micros_per_hour idle_cost_micros_per_hour snoozed_until"
)
GPU = (
    "pod container node index model used_by reasons verdict signature proof idle_since score coverage core_mean_ratio "
    "core_peak_ratio memory_used_bytes memory_total_bytes power_watts"
)
READINGS = "index uuid model is_up is_free temperature_celsius power_watts utilization_ratio errors"
ACTION = f"{KEY} policy action state acted_at gpus waiting_gpus is_restorable by error"
AMOUNTS = (
    "allocated_gpu_ms active_gpu_ms effective_gpu_ms ineffective_gpu_ms idle_gpu_ms unknown_gpu_ms unpriced_gpu_ms "
    "active_cost_micros idle_cost_micros unknown_cost_micros ineffective_cost_micros"
)
Grouping = Literal["team", "user", "namespace", "cluster", "model", "node", "workload", "day"]
Waster = Annotated[
    Literal["workload", "kind_of_idle", "team", "user", "namespace"],
    Field(description="workload, kind_of_idle: now; team, user, namespace: GPU-hours since `since`."),
]
Horizon = Annotated[Literal["1h", "4h", "morning"], Field(description="For how long; morning: until 08:00.")]
Name = Annotated[str, Field(max_length=253)]
Namespace = Annotated[Name, Field(description="Only this namespace; empty: all that you may see.")]
Cluster = Annotated[Name, Field(description="Only this cluster, where there are several.")]
Since = Annotated[str, Field(max_length=40, description="Start: 24h, 7d, 4w before now, or a date (ISO 8601).")]
Limit = Annotated[int, Field(ge=1, le=50, description="Maximum number of rows.")]
Days = Annotated[int, Field(ge=1, le=90, description="Days that waste is summed over.")]


@dataclass(frozen=True)
class Questions:
    """About one analyzer, as one caller sees it. All methods raise QuestionError."""

    fetch: Callable[[str, Sequence[tuple[str, str]]], Awaitable[Row]]  # the JSON at a path of the API
    url: str = ""  # where people open it; empty: not known

    async def cluster_summary(self, days: Days = 7, cluster: Cluster = "", limit: Limit = 10) -> Answer:
        """How many GPUs exist, are held, active, effective, idle, unknown and free, and what waste costs. Ask this
        first. Rows: the idle workloads that cost most now; `teams`: waste of the last days."""
        found = await self._read("overview", days=days, cluster=cluster)
        summary, total = show(found, "gpus workloads idle_workloads waste potential funnel"), found["idle_workloads"]
        top, teams = ([show(each) for each in found[name][:limit]] for name in ("top", "teams"))
        said = {"summary": summary, "teams": teams}
        return await self._answer("overview", top, limit, total=total, empty="no workload is idle now", **said)

    async def who_wastes_gpus(
        self,
        by: Waster = "workload",
        since: Since = "7d",
        namespace: Namespace = "",
        cluster: Cluster = "",
        limit: Limit = 10,
    ) -> Answer:
        """Who holds GPUs without using them, or keeps them busy for nothing. By workload: idle ones with the most GPUs
        first, then suspicious ones (keep-alive, stalled, health checks only); a suspicion is no proof."""
        if by in ("team", "user", "namespace"):
            return await self.gpu_cost(by, since, namespace, cluster, limit)
        place = {"namespace": namespace, "cluster": cluster, "limit": 1000 if by == "kind_of_idle" else limit}
        idle = await self._read("workloads", verdict="idle", sort="-idle_gpus", **place)
        busy = await self._read("workloads", verdict="suspicious", sort="-gpus", **place)
        rows, total = [*idle["items"], *busy["items"]], idle["total"] + busy["total"]
        items = [show(each, WORKLOAD) for each in rows]
        if by == "kind_of_idle":
            kinds = {each["signature"] for each in rows}
            items = [_sum_up([each for each in rows if each["signature"] == kind]) for kind in kinds]
            items.sort(key=lambda each: -each["gpus"])
            total = len(items) if len(rows) == total else None
        empty = "nothing that matches is idle or suspicious now"
        return await self._answer("workloads", items, limit, total=total, empty=empty)

    async def explain_workload(
        self, name: Name, namespace: Namespace = "", kind: Name = "", cluster: Cluster = "", limit: Limit = 10
    ) -> Answer:
        """Why a workload (or the one of a pod, by its name) is active, idle, suspicious or unknown: reasons, evidence,
        cost, which of its GPUs are stalled. It is safe to stop only if `safe_to_stop.outcome` is act; else the guards
        that are left say why not. Rows: its GPUs, or candidates: then ask again with kind and namespace."""
        found = await self._find(name, kind, namespace=namespace, cluster=cluster)
        if len(found) != 1:
            empty = "no workload or pod of this name holds a GPU that this role may see; gpu_cost has what ended"
            items, total = [show(each, KEY) for each in found], len(found)
            return await self._answer("workloads", items, limit, total=total, empty=empty)
        key = {part: found[0][part] for part in KEY.split()}
        path = "/".join(quote(key[part], safe="") or "-" for part in ("kind", "namespace", "name"))
        detail, plan = await self._read(f"workloads/{path}", cluster=key["cluster"]), await self._read("plan", **key)
        row = {**detail["workload"], **{part: detail[part] for part in ("finding", "reasons", "evidence")}}
        summary = show(row, f"{WORKLOAD} finding reasons evidence requests resumption") | show(plan, "mode")
        summary["untrusted"] |= {"link": self._link(f"workloads/{path}")} if self.url else {}
        summary["safe_to_stop"] = next((_show_decision(each) for each in plan["items"]), None)
        gpus = [{**each["allocation"], "reasons": each["reasons"]} for each in detail["allocations"]]
        items, total = [show(each, GPU) for each in gpus], detail["allocations_total"]
        return await self._answer("workloads", items, limit, total=total, empty="it holds no GPU", summary=summary)

    async def _find(self, name: str, kind: str, **place: str) -> Sequence[Row]:
        """Those with exactly this name, else those of the pod with this name."""
        listed = (await self._read("workloads", q=name, limit=200, **place))["items"]
        found = [each for each in listed if each["name"] == name]
        if not found:
            pods = (await self._read("allocations", q=name, limit=200, **place))["items"]
            owners = [each["workload"] for each in pods if each["pod"] == name]
            found = list({tuple(each.values()): each for each in owners}.values())
        return [each for each in found if kind.lower() in ("", each["kind"].lower())]

    async def gpu_cost(
        self,
        by: Grouping = "team",
        since: Since = "7d",
        namespace: Namespace = "",
        cluster: Cluster = "",
        limit: Limit = 10,
    ) -> Answer:
        """GPU-hours and money of a period: held (allocated), active, effective, idle and unknown. Rows: groups, the
        highest idle cost first; `summary`: the total. A model without a price is in `unpriced_gpu_hours`, never 0."""
        place = {"namespace": namespace, "cluster": cluster}
        report = await self._read("reports", by=by, since=since, rows=limit, top=0, **place)
        period, others = report["range"], report["others"]
        summary = show(report["total"], f"{AMOUNTS} unallocated_gpu_ms unallocated_cost_micros")
        for end in ("since", "until"):
            summary[end] = f"{datetime.fromtimestamp(period[f'{end}_ms'] // 1000, UTC):%FT%TZ}"
        said = {"summary": {**summary, "is_partly_recorded": period["is_partial"]}, "currency": report["currency"]}
        items = [show(each, KEY) | show(each["amounts"], AMOUNTS) for each in report["groups"]]
        total = len(items) + (int(others["name"]) if others else 0)
        empty = "nothing that matches is recorded in this period; this does not mean that cost is zero"
        return await self._answer("teams", items, limit, total=total, empty=empty, **said)

    async def what_will_happen(self, namespace: Namespace = "", cluster: Cluster = "", limit: Limit = 10) -> Answer:
        """What reclaim would do now and when, which guards say no, and what it did that can be restored (`done`). In
        mode observe nothing is changed. Only people snooze or restore: at `link`."""
        place, outcomes = {"namespace": namespace, "cluster": cluster}, ("act", "warn", "wait", "refuse")
        plan = await self._read("plan", outcome=outcomes, limit=limit, **place)
        actions = await self._read("actions", state=("acting", "acted", "verified", "failed"), limit=500)
        chosen = [each for each in actions["items"] if all(one in ("", each[part]) for part, one in place.items())]
        done, empty = [show(each, ACTION) for each in chosen[:limit]], f"nothing is planned (mode {plan['mode']})"
        said = {"summary": show(plan, "at mode stopped_by counts"), "done": done}
        items = [_show_decision(each) for each in plan["items"]]
        return await self._answer("actions", items, limit, total=plan["total"], empty=empty, **said)

    async def what_can_be_lent(self, horizon: Horizon = "4h", model: Name = "", limit: Limit = 10) -> Answer:
        """How many idle GPUs of each model nobody will need for a time, with a probability of at least 0.9, and whose
        they are: a forecast from recorded idle spells, no promise. `waiting`: restored workloads that wait for GPUs."""
        items = [show(each) for each in (await self._read("lendable", horizon=horizon, model=model, limit=3))["items"]]
        actions = (await self._read("actions", state="restored", limit=500))["items"]
        waiting = [show(each, ACTION) for each in actions if each["waiting_gpus"] is not None][:limit]
        empty = "no GPU that matches is proven idle by signals that include all of the time"
        return await self._answer("overview", items, limit, total=len(items), empty=empty, waiting=waiting)

    async def gpu_health(self, node: Name = "", cluster: Cluster = "", limit: Limit = 10) -> Answer:
        """Which GPUs report errors (XID, ECC, row remapping), are lost, or could not be judged. With `node`: all its
        GPUs. Else the exporters of `limit` nodes are read, those with the most unknown GPUs first: GPUs with errors."""
        listed = (await self._read("nodes", cluster=cluster))["items"]
        nodes = [each for each in listed if node in ("", each["node"])]
        chosen = sorted(nodes, key=lambda each: -each["unknown_gpus"])[:limit]
        paths = [(f"nodes/{quote(each['node'], safe='') or '-'}", each["cluster"]) for each in chosen]
        read = [await self._read(path, cluster=cluster) for path, cluster in paths]
        gpus = [(detail["node"], gpu) for detail in read for gpu in detail["gpus"]]
        shown = [(on, gpu) for on, gpu in gpus if node or gpu["errors"] or gpu["is_up"] is False]
        items = [{"on": show(on, "cluster node"), **show(gpu, READINGS)} for on, gpu in shown]
        summary: Answer = {"nodes": len(nodes), "nodes_read": len(read), "gpus_read": len(gpus)}
        summary["failed"] = [show(each, "readings_error") for each in read if each["readings_error"]][:5]
        summary["unknown"] = [show(each, "cluster node unknown_gpus") for each in chosen if each["unknown_gpus"]]
        empty = "the nodes that were read report no error" if nodes else "no such node is visible with this role"
        total = len(items) if len(read) == len(nodes) else None
        return await self._answer("nodes", items, limit, total=total, empty=empty, summary=summary)

    async def _read(self, resource: str, **parameters: object) -> Row:
        """One resource of the API; empty parameters are left out."""
        given = {name: value if isinstance(value, tuple) else (value,) for name, value in parameters.items()}
        query = [(name, str(each)) for name, values in given.items() for each in values if each != ""]
        return await self.fetch(f"/api/v1/{resource}", query)

    async def _answer(self, page: str, items: list[Answer], limit: int, **said: Any) -> Answer:
        """`page`: of the web UI, for people; see `make_answer`."""
        return make_answer(await self._read("health"), items[:limit], limit=limit, link=self._link(page), **said)

    def _link(self, page: str) -> str | None:
        return f"{self.url.rstrip('/')}/ui/#/{page}" if self.url else None


TOOLS: Mapping[str, Any] = {
    name: tool for name, tool in vars(Questions).items() if not name.startswith("_") and callable(tool)
}


def _sum_up(rows: Sequence[Row]) -> Answer:
    """Of one pattern; money is unknown as soon as one workload has no price."""
    costs, gpus = [each["cost_micros_per_hour"] for each in rows], round(sum(each["gpus"] for each in rows), 2)
    found = {"signature": rows[0]["signature"], "workloads": len(rows), "gpus": gpus}
    return show({**found, "cost_micros_per_hour": None if None in costs else sum(costs)})


def _show_decision(decision: Row) -> Answer:
    """With the guards that have not passed, those that say no first."""
    left = sorted((each for each in decision["answers"] if not each["passed"]), key=lambda each: each["passed"] is None)
    shown = show(decision, f"{KEY} policy action outcome due_at idle_since gpus")
    return {**shown, "guards_left": [show(each) for each in left[:4]], "guards_left_total": len(left)}
