"""The components behind the endpoints; `app.py` creates them, tests replace them with fakes."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Protocol, TypeVar

from fastapi import Depends, Request

from gpusteward.analyzer.api.event_feed import EventFeed
from gpusteward.analyzer.api.http.cached_reads import CachedReads
from gpusteward.analyzer.api.http.concurrency_limits import ClientShares, ConcurrencyLimit, query_reclaim
from gpusteward.analyzer.api.http.identities import Identity, Refusals, Sessions, SignInLimit
from gpusteward.analyzer.api.http.problems import ProblemError, not_ready
from gpusteward.analyzer.api.http.roles import Roles
from gpusteward.analyzer.api.http.static_files import UiBundle
from gpusteward.analyzer.api.http.token_verifiers import OidcVerifier, ServiceAccountVerifier
from gpusteward.analyzer.api.result_store import PublishedResult, ResultStore
from gpusteward.analyzer.api.source_reader import SourceReader
from gpusteward.analyzer.data_health import DataHealth, assess_data, sort_findings
from gpusteward.analyzer.explain.explainer import ModelCounters
from gpusteward.analyzer.ledger.database.leadership import Leadership
from gpusteward.analyzer.ledger_access import LedgerAccess
from gpusteward.analyzer.notify.links import LinkSigner
from gpusteward.analyzer.notify.notifier import Notifier
from gpusteward.analyzer.pipeline import CycleStats
from gpusteward.analyzer.reclaim.plan import ReclaimControl, Suspended
from gpusteward.analyzer.reclaim.policies.resolve import WatchedPolicies
from gpusteward.analyzer.scheduler import CycleScheduler
from gpusteward.analyzer.settings.masked import MaskedSetting
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.tables import SiteFinding
from gpusteward.core.messages import Message
from gpusteward.core.namespaces import VisibleNamespaces
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.http_server.web_config import WebConfig
from gpusteward.messages import data_health as health_messages
from gpusteward.messages.errors import api_errors

T = TypeVar("T")
LONGEST_SNOOZE_SECONDS = 7 * 86_400.0
"""Where no policy of the workload is known; the default of policies."""


class SettingsControl(Protocol):
    """The settings in effect. Implemented by `runtime_settings.RuntimeSettings`, which knows the tokens of this API."""

    @property
    def current(self) -> Settings: ...

    @property
    def roles(self) -> Roles: ...

    def change(self, values: Mapping[str, object]) -> Settings:
        """Raises ConfigurationError, and changes nothing, for values that cannot be used."""

    def count_reloads(self) -> Mapping[str, int]: ...

    def describe(self) -> Sequence[MaskedSetting]:
        """Every setting with its origin; secrets are masked."""


@dataclass(frozen=True)
class RequestLimits:
    """How many slow requests of each kind may run at once."""

    series: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit(api_errors.SERIES))
    gpus: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit(api_errors.GPU_READINGS, size=4))
    processes: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit(api_errors.PROCESSES))
    reports: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit(api_errors.REPORTS))
    ended_workloads: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit(api_errors.ENDED_WORKLOADS))
    history: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit(api_errors.HISTORY, size=4))
    replay: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit(api_errors.REPLAYS, size=2))
    snoozes: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit(api_errors.SNOOZES, size=4))
    deliveries: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit(api_errors.DELIVERIES))
    reclaim: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit(api_errors.ACTIONS, size=4))
    passwords: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit(api_errors.PASSWORDS, size=8))


@dataclass(frozen=True)
class ApiDependencies:
    """Everything an endpoint may use.

    Whose namespaces the client sees is `visible`. Every read takes it, so that none can forget it: the results here are
    already those of the client, source, ledger and reclaim want it as an argument. What cannot be divided by namespace
    is refused (`may_read_all`), or is left out by the properties below.
    """

    results: ResultStore
    events: EventFeed
    cycles: CycleScheduler
    settings: SettingsControl
    source: SourceReader
    ledger: LedgerAccess
    deliveries: Notifier
    model_calls: ModelCounters
    leadership: Leadership = field(default_factory=lambda: Leadership(None, lease_seconds=0))
    limits: RequestLimits = field(default_factory=RequestLimits)
    shares: ClientShares = field(default_factory=ClientShares)
    clock: Callable[[], float] = time.time
    web: Callable[[], WebConfig] = WebConfig
    oidc: OidcVerifier = field(default_factory=OidcVerifier)
    service_accounts: ServiceAccountVerifier = field(default_factory=ServiceAccountVerifier)
    refusals: Refusals = field(default_factory=Refusals)
    reads: CachedReads = field(default_factory=CachedReads)
    sessions: Sessions = field(default_factory=Sessions)
    sign_ins: SignInLimit = field(default_factory=SignInLimit)
    ui: UiBundle = field(default_factory=UiBundle)
    reclaim: ReclaimControl | None = None  # None: mode off
    policies: WatchedPolicies = field(default_factory=lambda: WatchedPolicies(None))
    links: LinkSigner = field(default_factory=LinkSigner)
    visible: VisibleNamespaces | None = None  # what the client may see; None: everything

    async def limit_to(self, visible: VisibleNamespaces | None) -> "ApiDependencies":
        """For a client who sees these namespaces; None: everything. Without the /metrics page of the whole site."""
        if visible is None:
            return self
        return replace(self, results=await self.results.limit_to(visible), visible=visible)

    @property
    def stats(self) -> CycleStats:
        """The cycles so far; without error texts for whoever sees some namespaces: they may name anything."""
        stats = self.cycles.stats
        if self.visible is None:
            return stats
        return replace(stats, last_error=stats.last_error and str(api_errors.HIDDEN_ERROR), stages={})

    @property
    def suspended(self) -> Suspended | None:
        """What reclaim has changed at the whole site."""
        return self.reclaim.suspended if self.reclaim is not None and self.visible is None else None

    @property
    def policy_problem(self) -> Message | None:
        """Why there are no policies, where some are needed."""
        is_needed = self.policies.has_file or self.settings.current.reclaim.is_on
        return self.policies.error if is_needed else None

    def assess_data(self) -> DataHealth:
        published = self.results.published
        found = assess_data(
            published.result if published else None,
            stats=self.stats,
            settings=self.settings.current,
            target_counts=self.source.target_counts,
            now=self.clock(),
        )
        findings = list(found.findings)
        if self.policy_problem is not None:
            reason = self.policy_problem if self.visible is None else health_messages.ASK_ADMIN
            text = health_messages.POLICIES_REFUSED.fill(reason=reason)
            findings.append(SiteFinding("warning", "policies-refused", text))
        if uid := self.leadership.foreign_cluster:
            text = health_messages.CLUSTER_NOT_RECORDED.fill(leader=self.leadership.leader, cluster=uid)
            findings.append(SiteFinding("warning", "cluster-not-recorded", text))
        return replace(found, findings=sort_findings(findings))

    def require_reclaim(self) -> ReclaimControl:
        """Raises a 409 problem where there is no API server or no ledger."""
        if self.reclaim is None:
            raise ProblemError(409, "reclaim-off", api_errors.RECLAIM_OFF)
        return self.reclaim

    async def ask_reclaim(self, act: Callable[[], T]) -> T:
        """What the API server or the ledger may delay. Raises a 409 problem for what is refused, or a 503 or 504
        problem."""
        return await query_reclaim(act, self.limits.reclaim, visible=self.visible)

    def find_longest_snooze(self, workload: WorkloadKey) -> float:
        """Seconds for which the workload may be snoozed: as its policy says, else as by default."""
        plan = self.reclaim.read_plan(visible=self.visible) if self.reclaim is not None else None
        for decision in plan.decisions if plan else ():
            found = decision.workload
            key = WorkloadKey(found.kind, found.namespace, found.name, found.cluster)
            if key == workload and decision.policy is not None:
                return decision.policy.longest_snooze_seconds
        return LONGEST_SNOOZE_SECONDS

    def describe_ledger(self) -> Mapping[str, Any] | None:
        """The state of the ledger, also where the stage `record` failed before it reached the database."""
        described, error = self.ledger.describe(), self.stats.stage_error("record")
        if described and self.visible is not None:
            return {name: described.get(name) for name in ("is_ready", "booked_at")}
        return {**described, "is_ready": False, "error": error} if described and error else described

    def describe_deliveries(self) -> Mapping[str, Any]:
        """The state of deliveries, also where the stage `notify` failed; they go to channels of the whole site."""
        if self.visible is not None:
            return {}
        described, error = self.deliveries.describe(), self.stats.stage_error("notify")
        return {**described, "fault": error} if error else described


def reader_refuses(dependencies: ApiDependencies) -> ProblemError:
    """The problem for a change that only the leader can make."""
    return ProblemError(409, "reader", api_errors.READER, leader=dependencies.leadership.leader or "?")


async def find_service(request: Request) -> ApiDependencies:
    """For endpoints that everybody may read, and that show nothing of the cluster."""
    dependencies: ApiDependencies = request.app.state.dependencies
    return dependencies


async def find_dependencies(request: Request) -> ApiDependencies:
    """As the access check of the route granted them. Without such a check there are none: no endpoint can forget it."""
    dependencies: ApiDependencies = request.state.dependencies
    return dependencies


async def find_identity(request: Request) -> Identity:
    """As the access check of the route found it."""
    identity: Identity = request.state.identity
    return identity


async def find_last_result(request: Request) -> PublishedResult:
    """Raises a 503 problem before the first result."""
    published = (await find_dependencies(request)).results.published
    if published is None:
        raise not_ready()
    return published


Service = Annotated[ApiDependencies, Depends(find_service)]
Dependencies = Annotated[ApiDependencies, Depends(find_dependencies)]
Client = Annotated[Identity, Depends(find_identity)]
LastResult = Annotated[PublishedResult, Depends(find_last_result)]
