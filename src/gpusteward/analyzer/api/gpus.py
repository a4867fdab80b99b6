"""/api/v1/gpus: one row a device or MIG instance, with everybody who holds it."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import Field

from gpusteward.analyzer.api.access import may_read
from gpusteward.analyzer.api.allocations import known
from gpusteward.analyzer.api.board import Posted
from gpusteward.analyzer.api.listings import Listing, Texts, filter_codes, lift, mean_by
from gpusteward.analyzer.api.pages import ActivityWord, ListQuery, Page, StateWord, Words, answer_page
from gpusteward.analyzer.api.serving import PostedHere
from gpusteward.analyzer.exports import gpu_id
from gpusteward.analyzer.judge.keys import encode
from gpusteward.analyzer.judge.states import name_states
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import ACTIVITIES, STATES
from gpusteward.core.verdicts import Activity

router = APIRouter(prefix="/api/v1", dependencies=[Depends(may_read)], tags=["gpus"])

LISTING = "gpus"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds it."""

    namespace: str
    pod: str
    container: str
    share: str
    activity: ActivityWord


@dataclass(frozen=True, slots=True)
class GpuRow:
    """A device or a MIG instance that somebody holds."""

    id: Annotated[str, Field(description="UUID; of a MIG instance UUID/INSTANCE.")]
    uuid: str
    instance: str
    index: str
    node: str
    model: str
    score: Annotated[float | None, Field(description="Mean of its holders' scores, as far as they are known.")]
    state: StateWord
    activity: Annotated[ActivityWord, Field(description="Idle only if every holder is idle.")]
    holders: list[Holder]


class GpuQuery(ListQuery):
    """Which GPUs, and in which order."""

    sort: Literal["id", "-id", "node", "-node", "model", "-model", "score", "-score", "holders", "-holders"] = Field(
        default="node", description="`-` in front turns it around; the unknown comes last either way."
    )
    namespace: Words = Field(default=(), description="GPUs that somebody of these namespaces holds.")
    state: Annotated[tuple[StateWord, ...], Field(max_length=5)] = ()
    activity: Annotated[tuple[ActivityWord, ...], Field(max_length=3)] = ()
    node: Words = ()
    model: Words = ()


class GpuView:
    """The GPUs of one result, ready to be listed."""

    def __init__(self, result: Result) -> None:
        self._verdicts = result.verdicts
        coded = encode([gpu_id(one) for one in result.verdicts.usage.holdings])
        self._ids, self._codes = coded.names, coded.codes
        self._holders = np.bincount(self._codes, minlength=len(self._ids))
        self._rows = np.argsort(self._codes, kind="stable")
        self._begins = np.concatenate(([0], np.cumsum(self._holders)))
        self._score = mean_by(result.verdicts.score, self._codes, size=len(self._ids))
        self._activity = self._join_activity()
        self._state = name_states(self._score, self._activity, thresholds=result.settings.thresholds)
        self.listing = self._make_listing()

    def _join_activity(self) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
        """As for workloads: one active holder makes it active, one unknown keeps it from being idle."""
        codes = {each: ACTIVITIES.index(each) for each in Activity}
        active, unknown = (
            np.bincount(self._codes[self._verdicts.activity == codes[each]], minlength=len(self._ids)) > 0
            for each in (Activity.ACTIVE, Activity.UNKNOWN)
        )
        chosen = np.select([active, unknown], [codes[Activity.ACTIVE], codes[Activity.UNKNOWN]], codes[Activity.IDLE])
        return chosen.astype(np.int8)

    def _make_listing(self) -> Listing:
        holdings, size = self._verdicts.usage.holdings, len(self._ids)
        firsts = self._rows[self._begins[:-1]]
        node = Texts(lambda: [holdings[row].node for row in firsts.tolist()])
        model = Texts(lambda: [holdings[row].model for row in firsts.tolist()])
        namespace = Texts(lambda: [one.container.namespace for one in holdings])
        names = Texts(
            lambda: [f"{one.node} {gpu_id(one)} {one.container.namespace}/{one.container.pod}" for one in holdings]
        )
        return Listing(
            size,
            sorts={
                "id": lambda: self._ids,
                "node": node.sort,
                "model": model.sort,
                "score": lambda: self._score,
                "holders": lambda: self._holders,
            },
            filters={
                "namespace": lift(namespace.among, self._codes, size=size),
                "state": filter_codes(self._state, STATES),
                "activity": filter_codes(self._activity, ACTIVITIES),
                "node": node.among,
                "model": model.among,
                "q": lift(names.containing, self._codes, size=size),
            },
        )

    def row(self, number: int) -> GpuRow:
        rows = self._rows[self._begins[number] : self._begins[number + 1]].tolist()
        holding = self._verdicts.usage.holdings[rows[0]]
        return GpuRow(
            id=self._ids[number],
            uuid=holding.gpu_uuid,
            instance=holding.gpu_instance,
            index=holding.gpu_index,
            node=holding.node,
            model=holding.model,
            score=known(self._score, number, digits=1),
            state=STATES[self._state[number]].value,
            activity=ACTIVITIES[self._activity[number]].value,
            holders=[self._holder(row) for row in rows],
        )

    def _holder(self, row: int) -> Holder:
        holding, activity = self._verdicts.usage.holdings[row], ACTIVITIES[self._verdicts.activity[row]].value
        container = holding.container
        return Holder(container.namespace, container.pod, container.name, str(holding.share), activity)


def view_gpus(posted: Posted) -> GpuView:
    return posted.once(LISTING, GpuView)


@router.get("/gpus", summary="GPUs", response_model=Page[GpuRow])
def list_gpus(request: Request, posted: PostedHere, query: Annotated[GpuQuery, Query()]) -> Response:
    """Every GPU that somebody holds, and who."""
    view = view_gpus(posted)
    return answer_page(request, query, result=posted.result, listing=lambda: view.listing, row=view.row)
