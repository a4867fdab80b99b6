"""The rows of the lists of /api/v1: what the analyzer sends, and what the command line reads.

A row is a dataclass: its fields are the columns of the list, with their types and descriptions. The OpenAPI document,
the columns of `/api/v1/workloads/table` and the decoder of clients are made from it. Words of a fixed set are plain
texts for a client, which may be older than the analyzer; the document names them all.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from gpusteward.core.verdicts import Activity, Proof, Signature, State, Step, VerdictName

Row = TypeVar("Row")
MOST_NAMES = 8
"""Users, models and nodes of one workload that are listed."""


@dataclass(frozen=True, slots=True)
class About:
    """What a field means, for the OpenAPI document."""

    text: str

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[[Any], Mapping[str, Any]]) -> dict[str, Any]:
        return {**handler(schema), "description": self.text}


def published_as(name: str) -> Callable[[type[Row]], type[Row]]:
    """The name of a row in the OpenAPI document, which is public, where another class of the program has it."""

    def rename(row: type[Row]) -> type[Row]:
        row.__name__ = row.__qualname__ = name
        return row

    return rename


class OneOf:
    """A text that is one of these words, for the OpenAPI document."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = [str(word) for word in words]

    def __get_pydantic_json_schema__(self, schema: Any, handler: Callable[[Any], Mapping[str, Any]]) -> dict[str, Any]:
        return {**handler(schema), "enum": self.words}


ClusterName = Annotated[str, About("Empty where the series of the site name no cluster.")]
StateName = Annotated[str, OneOf(State)]
ActivityName = Annotated[str, OneOf(Activity)]
SignatureName = Annotated[str, OneOf(Signature)]
VerdictWord = Annotated[
    str,
    OneOf(VerdictName),
    About(
        "What it does with its GPUs, in one word: from activity and signature. suspicious: it looks busy but is not "
        "(keep-alive, stalled, health-check, and no-requests where its GPUs spin)."
    ),
]
VerdictOfPart = Annotated[
    str, OneOf(VerdictName), About("The part that it has in the verdict of its workload: suspicious GPUs are active.")
]
ProofName = Annotated[str, OneOf(Proof)]
HowProven = Annotated[
    ProofName, About("integrated: all of the time was measured; sampled: work between samples is not seen.")
]
HighestStep = Annotated[
    str,
    OneOf(Step),
    About("The highest action that the signature, the proof and the second opinion allow."),
]


@dataclass(frozen=True)
class ResultStamp:
    """The result that a response is from."""

    tag: str
    number: int
    at: Annotated[str, About("The end of the window, UTC.")]
    window_seconds: float
    age_seconds: Annotated[float, About("How long ago that was.")]
    stale: Annotated[
        bool, About("Whether newer results are missing: older than two intervals, or the last cycle failed.")
    ]
    last_error: Annotated[str, About("Why the last cycle failed; empty when it did not.")]


@dataclass(frozen=True)
class Page(Generic[Row]):
    """One page of a list."""

    items: list[Row]
    total: Annotated[int, About("How many rows pass the filters, on all pages together.")]
    next: Annotated[str | None, About("The cursor of the next page; null on the last one.")]
    result: ResultStamp


@dataclass(frozen=True, slots=True)
class ChanceOfWork:
    """The chance that work comes back within a time."""

    probability: Annotated[float | None, About("0 to 1; null: too few idle spells are known.")]
    spells: Annotated[int, About("Idle spells that became as old, and whose following time is known.")]
    of: Annotated[
        str,
        OneOf(("workload", "kind", "")),
        About("Whose spells these are: its own, or those of all workloads of its kind."),
    ]


@dataclass(frozen=True, slots=True)
class ResumptionChances:
    """The chance that work comes back to an idle workload, from its idle spells or those of its kind."""

    within_30_minutes: ChanceOfWork
    within_2_hours: ChanceOfWork
    until_morning: ChanceOfWork


@dataclass(frozen=True, slots=True)
class ServerRequests:
    """The requests of the inference servers of a workload, by their counters. null: they do not say."""

    per_hour: Annotated[float | None, About("Finished ones, at the pace of the window.")]
    tokens_per_hour: Annotated[float | None, About("Read and generated ones, at the pace of the window.")]
    most_running: Annotated[float | None, About("At once, in the window; a gauge, which may be wrong.")]
    most_waiting: Annotated[float | None, About("At once, in the window; a gauge, which may be wrong.")]
    last_at: Annotated[str | None, About("The end of the last window with a request; null: none was seen yet.")]
    silent_since: Annotated[str | None, About("Since when it is proven that there was none; null: it is not.")]


@published_as("Workload")
@dataclass(frozen=True, slots=True)
class WorkloadRow:
    """A root owner. Idle only if every one of its GPUs is idle and has complete data."""

    cluster: ClusterName
    kind: str
    namespace: str
    name: str
    score: float | None
    state: StateName
    activity: ActivityName
    verdict: VerdictWord
    signature: SignatureName
    highest_step: HighestStep
    proof: HowProven
    gpus: Annotated[float, About("GPUs that it holds; a share of a GPU is a fraction.")]
    idle_gpus: Annotated[float, About("Those that are idle.")]
    unknown_gpus: Annotated[float, About("Those that could not be judged.")]
    idle_since: str | None
    allocations: Annotated[int, About("Containers on GPUs: one per container and GPU.")]
    idle_allocations: int
    unknown_allocations: int
    users: Annotated[list[str], About(f"Users of its pods; lists of names have at most {MOST_NAMES}.")]
    models: list[str]
    nodes: list[str]
    nodes_total: int
    currency: Annotated[str, About("Of the costs, which are millionths of it; null: no price.")]
    cost_micros_per_hour: Annotated[int | None, About("Of everything it holds.")]
    idle_cost_micros_per_hour: Annotated[int | None, About("Of its idle GPUs; null without any.")]
    idle_cost_micros: Annotated[int | None, About("Of its idle GPUs since they are idle.")]
    owner_evidence: Annotated[
        str,
        OneOf(("read", "reference", "derived", "unknown")),
        About(
            "How it is known that this object owns the pods: read from the API server by uid; named by an "
            "owner reference; derived from names or labels of the pods; unknown: the pod stands for its owner."
        ),
    ]
    owner_uid: Annotated[str, About("Empty where it was not read, or differs between the pods.")]
    resumption: Annotated[ResumptionChances | None, About("The chance that work comes back; null: it is not idle.")]
    requests: Annotated[ServerRequests | None, About("null: no metrics of an inference server are known.")]
    snoozed_until: Annotated[str | None, About("No notices about it are sent until then; null: it is not.")]


@dataclass(frozen=True, slots=True)
class WorkloadName:
    """The root owner; a pod without an owner is its own workload."""

    kind: str
    namespace: str
    name: str
    cluster: ClusterName


@published_as("Allocation")
@dataclass(frozen=True, slots=True)
class AllocationRow:
    """One container on one GPU over the window. null: not measured, never zero."""

    id: str
    cluster: ClusterName
    gpu: Annotated[str, About("UUID; of a MIG instance UUID/INSTANCE.")]
    node: str
    index: str
    model: str
    namespace: str
    pod: str
    container: str
    workload: WorkloadName
    share: str
    score: Annotated[float | None, About("0 to 100.")]
    state: StateName
    activity: ActivityName
    verdict: VerdictOfPart
    signature: SignatureName
    highest_step: HighestStep
    proof: HowProven
    doubt: Annotated[str, About("Why the activity is unknown; empty when it is known.")]
    idle_since: str | None
    coverage: Annotated[float, About("Samples seen / samples expected, 0 to 1.")]
    core_mean_ratio: float | None
    core_peak_ratio: float | None
    memory_used_bytes: float | None
    memory_total_bytes: float | None
    power_watts: float | None
    gpu_fraction: Annotated[float, About("The fraction of a GPU that it holds; 1 is a whole GPU.")]
    used_by: Annotated[str, About("The pod that uses the GPU in its place, if the two are a pair.")]


@dataclass(frozen=True, slots=True)
class Holder:
    """A container that holds the GPU."""

    namespace: str
    pod: str
    container: str
    share: str
    activity: ActivityName
    verdict: VerdictOfPart
    proof: ProofName
    gpu_fraction: Annotated[float, About("The fraction of the GPU that it holds.")]


@dataclass(frozen=True, slots=True)
class GpuRow:
    """A device or MIG instance that is held; or all free GPUs of one model on one node."""

    id: Annotated[
        str, About("UUID; of a MIG instance UUID/INSTANCE; of free GPUs NODE/MODEL/free. `CLUSTER:` in front.")
    ]
    cluster: ClusterName
    uuid: Annotated[str, About("Empty for free GPUs: sources count them only.")]
    instance: str
    index: str
    node: str
    model: str
    gpus: Annotated[float, About("GPUs: 1, the fraction of a MIG instance, or the number of free GPUs.")]
    score: Annotated[float | None, About("Mean of the known scores of its holders.")]
    state: Annotated[str, OneOf(("idle", "low", "normal", "high", "unknown", "free"))]
    activity: Annotated[
        str,
        OneOf(("active", "idle", "unknown", "free")),
        About("Idle only if every holder is idle; free without holders."),
    ]
    verdict: Annotated[
        str,
        OneOf((*VerdictName, "free")),
        About("As `activity`; suspicious where it is active and every active holder is suspicious."),
    ]
    holders: list[Holder]
    idle_gpus: Annotated[float, About("The part of `gpus` whose holders are idle.")]
    unknown_gpus: Annotated[float, About("The part of `gpus` whose holders are unknown.")]
    hidden_holders: Annotated[
        int, About("Holders in namespaces that the caller may not see; they count in no other field.")
    ]


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace that holds GPUs."""

    cluster: ClusterName
    namespace: str
    allocations: Annotated[int, About("Containers on GPUs: one per container and GPU.")]
    active: Annotated[int, About("Allocations that are active.")]
    idle: Annotated[int, About("Allocations that are idle.")]
    unknown: Annotated[int, About("Allocations that could not be judged.")]
    workloads: int
    idle_workloads: int
    average_score: Annotated[float | None, About("Over the allocations that have a score.")]
    low: Annotated[int, About("Allocations whose score is below the low threshold, or that are idle.")]
    memory_used_bytes: float | None
    power_watts: float | None
    gpus: Annotated[float, About("GPUs that it holds; a share of a GPU is a fraction.")]
    active_gpus: float
    idle_gpus: float
    unknown_gpus: float


@dataclass(frozen=True, slots=True)
class Process:
    """A process on one GPU. Unknown is null, never zero."""

    cluster: ClusterName
    namespace: str
    pod: str
    container: str
    node: str
    gpu: Annotated[str, About("UUID; of a MIG instance its own.")]
    index: Annotated[str, About("Of the GPU on its node; of a MIG instance with profile and instance id.")]
    pid: Annotated[int, About("On the node.")]
    process: Annotated[str, About("Its name.")]
    memory_bytes: float | None
    sm_ratio: float | None
    outside_allocation: Annotated[bool, About("Whether it is on a GPU that its pod does not hold.")]
    works_for: Annotated[str, About("The pod that holds the GPU, if that is another one and the two are a pair.")]


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes of the pods of a workload or a node."""

    processes: list[Process]
    total: Annotated[int, About("Number of processes; not all may be listed.")]
    untold: Annotated[list[str], About("Pods that no agent reports: their processes are unknown.")]
    pods: Annotated[int, About("How many pods of the workload or the node hold GPUs.")]
    result: ResultStamp
