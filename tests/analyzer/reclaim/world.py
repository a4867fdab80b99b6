"""A reclaimer on a real control plane, with simulated usage and time.

    world = World(kubernetes, tmp_path)
    world.hold(pods)              # these pods hold GPUs from now on, and are idle
    world.rest(minutes=90)        # cycles without reclaim
    world.cycle()                 # one cycle with it: warns
    world.rest(minutes=40)
    world.cycle()                 # acts

Every pod holds the GPUs that its containers ask for. Which pods exist is up to the cluster; a pod that is gone leaves
the usage table.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, cast

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.workloads import judge_workloads
from gpusteward.analyzer.ledger.database.db_engine import open_engine
from gpusteward.analyzer.ledger.database.schema_version import create_tables
from gpusteward.analyzer.notify.notices.reclaim_notices import ReclaimNotice
from gpusteward.analyzer.pool_minutes import PoolMinutes
from gpusteward.analyzer.pool_watch import PoolWatch
from gpusteward.analyzer.reclaim.cluster import Cluster as ReclaimCluster
from gpusteward.analyzer.reclaim.cluster import count_gpus
from gpusteward.analyzer.reclaim.components import ReclaimComponents
from gpusteward.analyzer.reclaim.execution.executor import OnStep
from gpusteward.analyzer.reclaim.execution.journal import Action, ActionState, Journal
from gpusteward.analyzer.reclaim.kinds.objects import KubeObject
from gpusteward.analyzer.reclaim.kinds.rights import OBSERVE_RIGHTS, OWN_NAMESPACE_RIGHTS, list_enforce_rights
from gpusteward.analyzer.reclaim.permission import ActorLease, Switch
from gpusteward.analyzer.reclaim.plan import Decision, Outcome
from gpusteward.analyzer.reclaim.policies.file import PolicyFile
from gpusteward.analyzer.reclaim.policies.policy import Policy, ReclaimAction
from gpusteward.analyzer.reclaim.policies.pool_rule import KeepRule
from gpusteward.analyzer.reclaim.policies.resolve import WatchedPolicies, WorkloadMetadata
from gpusteward.analyzer.reclaim.reclaimer import Reclaimer
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.live_readings import HostUse
from gpusteward.analyzer.sources.owners.cluster_owners import ClusterOwners
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.analyzer.sources.usage_source import Chart, UsageSource
from gpusteward.analyzer.tables import ServerPod, UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.core.kinds import OWNERS, WorkloadClass
from gpusteward.core.node.containers import Container, WorkloadKey
from gpusteward.core.usages import AllocationKey, Measure, Stat
from gpusteward.kubernetes.writes import ApiWriter
from tests.analyzer.usage_tables import resting, table_of, working
from tests.kubernetes.cluster import Account, ApiError, Cluster, Json

START = max(1_800_000_000.0, time.time() // 86_400 * 86_400 + 8 * 3600 + 2 * 86_400)
"""Simulated time is after that of the control plane: idle never begins before a pod does."""
STEP_SECONDS = 300.0
SCALED_KINDS = ("Deployment", "ReplicaSet", "StatefulSet")
CONTROLLER_SECONDS = 60.0
"""How long the real controller of one of these may take on a busy machine."""
Row = Mapping[tuple[Measure, Stat], float]
EMPTY: Row = resting(0.0, processes=0.0, watts=60.0)
"""A GPU without a process. A job that holds memory without work counts as hung, and is never acted on."""


def read_rules() -> list[Json]:
    """What the analyzer may read anyway: pods and owners."""
    groups = {"": ["pods"]}
    for kind in OWNERS:
        groups.setdefault(kind.group, []).append(kind.plural)
    return [{"apiGroups": [group], "resources": names, "verbs": ["get"]} for group, names in groups.items()]


def enforce_rules() -> list[Json]:
    """What mode enforce needs, from the table of rights."""
    rights = [*OBSERVE_RIGHTS, *list_enforce_rights(), *OWN_NAMESPACE_RIGHTS]
    return read_rules() + [
        {"apiGroups": [right.group], "resources": [right.resource], "verbs": list(right.verbs)} for right in rights
    ]


def suspend_policy(**fields: Any) -> Policy:
    defaults: dict[str, Any] = {
        "name": "test",
        "workload_class": WorkloadClass.INTERACTIVE,
        "action": ReclaimAction.SUSPEND,
        "window_seconds": 3600.0,
        "grace_seconds": 1800.0,
    }
    return Policy(**defaults | fields)


def pool_policy(keep: KeepRule | None = None, **fields: Any) -> Policy:
    """The most that were active in ten minutes and one more; a surplus waits for ten minutes."""
    keep = keep or KeepRule(window_seconds=600.0, patience_seconds=600.0)
    defaults: dict[str, Any] = {"action": ReclaimAction.SCALE_TO_KEEP, "is_pool": True, "grace_seconds": 600.0}
    return suspend_policy(keep=keep, **defaults | fields)


class FixedPolicies(WatchedPolicies):
    """One policy for all; `keep` annotations count."""

    def __init__(self, policy: Policy | None = None) -> None:
        super().__init__(None)
        self.error = None
        self.policy = policy or suspend_policy()

    @property
    def policy(self) -> Policy:
        return self._policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._policy, self.current = policy, PolicyFile(policies=[])  # another file: policies are looked up again

    def find_policy(self, metadata: WorkloadMetadata) -> Policy:
        both = {**metadata.namespace_annotations, **metadata.annotations}
        return replace(self.policy, keep_until=inf) if both.get("gpusteward.io/keep") == "true" else self.policy


@dataclass
class FakeSender:
    """Keeps notices; delivers them at once unless told otherwise."""

    clock: Callable[[], float]
    delivers: bool = True
    has_channel: bool = True
    notices: dict[str, ReclaimNotice] = field(default_factory=dict)
    delivered: dict[str, float] = field(default_factory=dict)
    renewed: list[ReclaimNotice] = field(default_factory=list)

    def send_reclaim_notice(self, notice: ReclaimNotice) -> tuple[str, ...]:
        if not self.has_channel:
            return ()
        key = f"{notice.kind}/{notice.action_id}/{notice.number}"
        if key not in self.notices:
            self.notices[key] = notice
            if self.delivers:
                self.delivered[key] = self.clock()
        return (key,)

    def renew_reclaim_notice(self, notice: ReclaimNotice) -> None:
        self.renewed.append(notice)

    def read_delivered(self, keys: Collection[str]) -> Mapping[str, float]:
        return {key: self.delivered[key] for key in keys if key in self.delivered}

    def kinds(self) -> list[str]:
        return [str(notice.kind) for notice in self.notices.values()]


@dataclass
class FakeSource:
    """Samples of GPUs right before an action: none has worked, but those of the pods in `working`."""

    namespace: str = ""
    working: set[str] = field(default_factory=set)  # names of pods
    find_row: Callable[[str], Row] = lambda _pod: EMPTY  # what the GPUs of a pod do
    age_seconds: float = 10.0  # of the newest sample
    step_seconds: float = 15.0  # the scrape interval
    on_read: Callable[[], None] = lambda: None  # called before the answer
    reads: list[list[str]] = field(default_factory=list)  # the pods that were asked for
    busy: float | None = None  # share of time with work, by a counter; None: there is none
    silent: bool | None = None  # whether the servers of these pods prove that there were no requests; None: no servers
    servers: Sequence[str] | None = None  # pods that have them; None: those that were asked for
    hosts: dict[str, HostUse] = field(default_factory=dict)  # by name of a pod; nothing is known of the others
    host_failure: str = ""  # why hosts cannot be read
    host_reads: list[set[str]] = field(default_factory=list)  # the pods that were asked for

    def read_host_use(self, pods: Collection[PodKey], at: float, *, seconds: float) -> Mapping[PodKey, HostUse]:
        self.host_reads.append({pod.name for pod in pods})
        if self.host_failure:
            raise SourceError(self.host_failure)
        return {pod: self.hosts[pod.name] for pod in pods if pod.name in self.hosts}

    def read_servers(self, at: float, *, seconds: float) -> Sequence[ServerPod]:
        pods = () if self.silent is None else self.reads[-1] if self.servers is None else self.servers
        return [
            ServerPod("vLLM", Container(self.namespace, pod), requests=0, is_silent=bool(self.silent)) for pod in pods
        ]

    def read_work(self, allocations: Sequence[AllocationKey], at: float, *, seconds: float) -> list[Chart]:
        self.reads.append([one.container.pod for one in allocations])
        self.on_read()
        return self.make_charts(allocations, at, seconds=seconds)

    def make_charts(self, allocations: Sequence[AllocationKey], at: float, *, seconds: float) -> list[Chart]:
        newest, count = at - self.age_seconds, int(seconds / self.step_seconds)
        times = [newest - self.step_seconds * number for number in reversed(range(count))]
        busy = {} if self.busy is None else {Measure.BUSY: [(time, self.busy) for time in times]}
        core = 0.0 if self.busy is None else 0.3  # of its short work, as a sample sees it
        return [
            Chart(
                one,
                {Measure.CORE: [(time, 0.7 if self._works(one.container.pod) else core) for time in times]} | busy,
            )
            for one in allocations
        ]

    def _works(self, pod: str) -> bool:
        return pod in self.working or self.find_row(pod).get((Measure.CORE, Stat.PEAK), 0.0) > 0


@dataclass
class PoolSamples:
    """The same samples, as a cycle reads them of pools."""

    source: FakeSource
    seen_at: Mapping[str, float]  # by name of the pod: a pod that is gone has no later samples

    def read_work(self, allocations: Sequence[AllocationKey], at: float, *, seconds: float) -> list[Chart]:
        charts = self.source.make_charts(allocations, at, seconds=seconds)
        return [self._cut(chart, self.seen_at.get(chart.allocation.container.pod, at)) for chart in charts]

    def _cut(self, chart: Chart, until: float) -> Chart:
        return replace(
            chart, lines={name: [each for each in line if each[0] <= until] for name, line in chart.lines.items()}
        )


class World:
    """See above."""

    def __init__(
        self,
        kubernetes: Cluster,
        folder: Path,
        *,
        mode: str = "enforce",
        account: Account | None = None,
        on_step: OnStep = lambda _step, _action: None,
    ) -> None:
        self.kubernetes = kubernetes
        self.now = START
        self.own = kubernetes.add_namespace("gpusteward")
        self.namespace = kubernetes.add_namespace("team")
        self.account = account or kubernetes.add_account(self.own, enforce_rules())
        self.engine = open_engine(f"sqlite:///{folder / 'ledger.db'}")
        create_tables(self.engine)
        self.policies, self.sender = FixedPolicies(), FakeSender(lambda: self.now)
        self.source = FakeSource(self.namespace)
        self.settings = self.make_settings(mode)
        self.rows: dict[str, Row] = {}  # by pod name, or by pod name and number of the GPU: what it does
        self.other_row: Row = EMPTY  # what all others do
        self.source.find_row = lambda pod: self.rows.get(pod, self.rows.get(f"{pod}/0", self.other_row))
        self.empty = EMPTY
        self.hidden: set[str] = set()  # pods on nodes without an exporter
        self.reported_claims = 0  # GPUs of ResourceClaims that are reported for each pod with claims
        self.started_at = START - 86_400
        self.has_uids = True  # metrics name uid and start of pods: not those of dcgm-exporter
        self.cluster_name = ""  # by the labels of the series
        self.own_namespace = self.own
        self.coverage = 1.0
        self.leads = True  # the ledger: not so where the analyzer of another cluster does
        self.snoozes: dict[Any, float] = {}
        self.on_step = on_step
        self.history: VerdictHistory | None = VerdictHistory()
        self.result: Result | None = None
        self.seen_at: dict[str, float] = {}  # by pod name
        self.minutes: dict[WorkloadKey, PoolMinutes] = {}  # what the ledger has of pools
        self.decided_at = 0.0  # by the monotonic clock: when the cycle that acted began
        self.reclaimer = self.start()

    def make_settings(self, mode: str) -> Settings:
        given = {"mode": mode, "namespace": self.own, "cool_down_minutes": 240}
        return Settings.model_validate({"reclaim": given})

    def start(self, *, holder: str = "analyzer-0", account: Account | None = None) -> Reclaimer:
        """A new process: what is not in the ledger or in the cluster is forgotten."""
        account = account or self.account
        api = ApiWriter.from_cluster(self.kubernetes.environ, account=account.folder, user_agent="gpusteward-analyzer")
        assert isinstance(api, ApiWriter)
        self.cluster = ReclaimCluster(api)
        self.owners = ClusterOwners(api)
        self.journal = Journal(self.engine, self.cluster.read_uid)
        self.lease = ActorLease(self.cluster, namespace=self.own, name="gpusteward-reclaim", holder=holder)
        self.reclaimer = Reclaimer(
            self.settings.reclaim,
            ReclaimComponents(
                cluster=self.cluster,
                journal=self.journal,
                switch=Switch(self.engine, self.cluster, namespace=self.own),
                lease=self.lease,
                policies=self.policies,
                sender=self.sender,
                source=self.source,
                read_snoozes=lambda _now: self.snoozes,
                own_namespace=self.own_namespace,
                clock=lambda: self.now,
                monotonic=lambda: self.now,
                on_step=self.on_step,
            ),
        )
        self.watch = PoolWatch(
            cast(UsageSource, PoolSamples(self.source, self.seen_at)),
            read_managed=self.reclaimer.list_pools,
            read_minutes=lambda _since: self.minutes,
        )
        return self.reclaimer

    def judge(self) -> Result:
        """A cycle without reclaim."""
        table = self.owners.resolve_owners(self.read_usage())
        assert self.history is not None
        verdicts, self.history = judge(table, self.settings.rules, self.history, now=self.now)
        workloads = judge_workloads(verdicts, self.settings.rules)
        number = 1 if self.result is None else self.result.number + 1
        result = Result(number, self.now, 0.1, self.settings, verdicts, workloads)
        self.result = replace(result, pools=self.watch.update(result))
        return self.result

    def read_usage(self) -> UsageTable:
        """All pods of the team's namespace that hold GPUs."""
        running = (
            each for each in self.kubernetes.list_pods(self.namespace) if each["status"].get("phase") == "Running"
        )
        pods = [each for each in running if each["metadata"]["name"] not in self.hidden]
        self.seen_at |= {each["metadata"]["name"]: self.now for each in pods}
        allocations, rows = [], []
        for pod in sorted(pods, key=lambda each: str(each["metadata"]["name"])):
            about = pod["metadata"]
            uid, started_at = (about["uid"], self.started_at) if self.has_uids else ("", None)
            container = Container(
                about["namespace"], about["name"], uid, "main", None, (), started_at, cluster=self.cluster_name
            )
            claimed = self.reported_claims if pod["spec"].get("resourceClaims") else 0
            for number in range(sum(count_gpus(KubeObject("v1", "Pod", pod)).values()) + claimed):
                gpu, node = f"GPU-{uid or about['name']}-{number}", pod["spec"]["nodeName"]
                allocations.append(AllocationKey(gpu, "", container, node, str(number), "NVIDIA H100", "exclusive"))
                rows.append(self.rows.get(f"{about['name']}/{number}", self.rows.get(about["name"], self.other_row)))
        return table_of(*rows, allocations=allocations, coverage=self.coverage, at=self.now)

    def work(self) -> None:
        """One cycle in which every GPU works."""
        before, self.other_row = self.other_row, working()
        self.judge()
        self.now += STEP_SECONDS
        self.other_row = before

    def rest(self, minutes: float) -> None:
        """Time passes; every five minutes there is a cycle without reclaim."""
        for _ in range(round(minutes * 60 / STEP_SECONDS)):
            self.judge()
            self.now += STEP_SECONDS

    def cycle(self) -> dict[str, Outcome]:
        """A cycle with reclaim, then five minutes pass; the outcomes by name of the workload."""
        result = self.judge()
        if self.leads:
            self.reclaimer.reclaim(result)
        else:
            self.reclaimer.continue_open(result)
        self._let_controllers_follow()
        self.now += STEP_SECONDS
        plan = self.reclaimer.last_plan
        return {decision.workload.name: decision.outcome for decision in plan.decisions} if plan else {}

    def _let_controllers_follow(self) -> None:
        """Simulated time is never ahead of the controllers: an action whose pods are not even being deleted after
        `VERIFY_SECONDS` is undone, and that is two cycles here."""
        for action in self.list_actions(ActionState.ACTED):
            if action.target is not None and action.target.kind in SCALED_KINDS:
                path, ends_at = action.target.path, time.monotonic() + CONTROLLER_SECONDS
                while self._is_behind(path) and time.monotonic() < ends_at:
                    time.sleep(0.05)

    def _is_behind(self, path: str) -> bool:
        """Whether the controller has not deleted yet what an object asks for no more."""
        try:
            item = self.kubernetes.request("GET", path)
        except ApiError:  # it is gone, or the server is
            return False
        return bool(item["status"].get("replicas", 0) > item["spec"]["replicas"])

    def run_until_acted(self) -> list[Action]:
        """Work, an hour of idleness, the warning, the grace period, the action."""
        self.work()
        self.rest(minutes=75)
        for _ in range(10):
            self.decided_at = time.monotonic()
            self.cycle()
            if acted := self.list_actions(ActionState.ACTED, ActionState.VERIFIED):
                return acted
        raise AssertionError(self.explain())

    def decision(self, name: str) -> Decision:
        plan = self.reclaimer.last_plan
        assert plan is not None
        return next(each for each in plan.decisions if each.workload.name == name)

    def list_failed(self, name: str) -> list[str]:
        """The guards that say no."""
        return [answer.guard for answer in self.decision(name).failed]

    def list_actions(self, *states: ActionState) -> list[Action]:
        return self.journal.list_newest(states=states)

    def explain(self) -> str:
        plan = self.reclaimer.last_plan
        decisions = plan.decisions if plan else ()
        lines = [
            f"{each.workload.name} {each.outcome}: " + "; ".join(f"{one.guard}: {one.reason.en}" for one in each.failed)
            for each in decisions
        ]
        lines += [f"{each.id} {each.state} {[step.note.en for step in each.steps]}" for each in self.list_actions()]
        return "\n".join(lines) or "no decisions"

    def list_writes(self) -> list[Json]:
        """The audit events of the analyzer's account that are no reads and no dry runs, and not its Lease."""
        events = self.kubernetes.read_audit(self.account.user)
        return [
            event
            for event in events
            if event["verb"] not in ("get", "list", "watch")
            and "dryRun=All" not in event["requestURI"]
            and "/leases" not in event["requestURI"]
        ]

    def put_to_work(self, names: Sequence[str]) -> None:
        self.rows |= {name: working() for name in names}

    def close(self) -> None:
        self.engine.dispose()
