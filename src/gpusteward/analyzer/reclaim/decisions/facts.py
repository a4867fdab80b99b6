"""The facts that the guards ask about one workload; types only."""

from typing import NamedTuple

from gpusteward.analyzer.judge.resumption import Chance
from gpusteward.analyzer.reclaim.actions import Action, Warned
from gpusteward.analyzer.reclaim.cluster import PodName
from gpusteward.analyzer.reclaim.policies.policy import Policy
from gpusteward.core.containers import Workload
from gpusteward.core.messages import Message
from gpusteward.core.verdicts import Activity, Proof, Signature, Step


class Pool(NamedTuple):
    """The replicas of an owner whose replicas are interchangeable."""

    replicas: int
    keep: int

    @property
    def surplus(self) -> int:
        return max(0, self.replicas - self.keep)


class Inspection(NamedTuple):
    """What the objects themselves say; read only where all other guards pass."""

    refusal: Message | None = None  # why they must not be changed
    text: str = ""  # what would change
    kind: str = ""
    name: str = ""
    uid: str = ""  # of the owner that was found
    incomplete: Message | None = None  # why not all GPUs of its pods are known to be in the verdict
    pods: int = 0
    other_pods: tuple[PodName, ...] = ()  # without GPUs, that would stop as well


class Counts(NamedTuple):
    """Actions so far, against which the limits of a policy count."""

    cycle: int = 0
    namespace: int = 0  # of this workload, in this cycle
    hour: int = 0
    hour_ends: tuple[float, ...] = ()  # when each action of the last hour does not count any more, the oldest first


class Facts(NamedTuple):
    """Everything the guards ask about one workload; of a pool only its surplus replicas."""

    now: float
    workload: Workload
    activity: Activity
    signature: Signature
    highest_step: Step
    proof: Proof
    gpus: float
    idle_gpus: float
    idle_since: float | None  # since when all of it is idle, proven by integrating signals
    coverage: float
    result_at: float
    cycles_seen: int
    least_coverage: float = 0.9
    max_age_seconds: float = 600.0
    policy: Policy | None = None
    chance: Chance = Chance()
    snoozed_until: float | None = None
    is_left_out: bool = False  # its namespace, by the setting `reclaim.namespaces`
    is_protected: bool = False
    has_pressure: bool = False
    counts: Counts = Counts()
    reverts: int = 0
    left_alone_until: float | None = None  # the end of a cool-down
    open_action: Action | None = None
    warnings: tuple[Warned, ...] = ()  # for this idle spell
    pods: tuple[str, ...] = ()  # uids of the pods with GPUs that would stop; empty: not read
    unknown_pod: str = ""  # one of them whose uid or start is not known
    pool: Pool | None = None
    leader: Message | None = None  # why this analyzer may not act; None: it may
    switch: Message | None = None  # why nobody may act
    policy_problem: Message | None = None  # why there are no policies
    inspection: Inspection | None = None  # None: not looked at
    is_usage_read: bool = False  # once more, right before the action
    usage: Message | None = None  # why it forbids the action; None: it does not

    @property
    def idle_seconds(self) -> float:
        return 0.0 if self.idle_since is None else max(0.0, self.now - self.idle_since)
