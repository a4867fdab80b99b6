"""Creates the reclaimer with everything it uses."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from gpusteward.analyzer.judge.resumption import Chance
from gpusteward.analyzer.ledger.database.db_engine import describe_error
from gpusteward.analyzer.ledger.snoozes import active_snoozes
from gpusteward.analyzer.notify.notifier import Notifier
from gpusteward.analyzer.reclaim.cluster import Cluster
from gpusteward.analyzer.reclaim.components import ReclaimComponents, no_chance
from gpusteward.analyzer.reclaim.execution.executor import OnStep
from gpusteward.analyzer.reclaim.execution.journal import Journal
from gpusteward.analyzer.reclaim.permission import ActorLease, Switch
from gpusteward.analyzer.reclaim.policies.resolve import WatchedPolicies
from gpusteward.analyzer.reclaim.reclaimer import Reclaimer
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.owners.cluster_owners import open_api_as
from gpusteward.analyzer.sources.usage_source import UsageSource
from gpusteward.core.errors import SourceError
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.kubernetes.api import SERVICE_ACCOUNT, read_own_namespace
from gpusteward.kubernetes.writes import ApiWriter
from gpusteward.messages import reclaim as messages


def open_cluster(settings: Settings, environ: Mapping[str, str], *, account: Path = SERVICE_ACCOUNT) -> Cluster | None:
    """The cluster that reclaim changes, in every mode: what is suspended can be restored also in mode off. None where
    there is no API server."""
    try:
        return Cluster(open_api_as(ApiWriter, settings.kubernetes, environ, account))
    except SourceError:
        return None


def find_own_namespace(settings: Settings, environ: Mapping[str, str]) -> str:
    """Where the Lease is, and the annotation that switches reclaim off; empty: not known."""
    return settings.reclaim.namespace or read_own_namespace(environ)


def build_reclaimer(
    settings: Settings,
    *,
    cluster: Cluster | None,
    engine: Engine | None,
    sender: Notifier | None,
    source: UsageSource | None,
    holder: str,
    own_namespace: str,
    policies: WatchedPolicies | None = None,
    read_chance: Callable[[WorkloadKey, float, float], Chance] = no_chance,
    clock: Callable[[], float] = time.time,
    on_step: OnStep = lambda _step, _action: None,
) -> Reclaimer | None:
    """None where there is no cluster or no ledger: then nothing can be planned, done or restored. In mode off nothing
    is planned or begun, and what is suspended can be restored."""
    if cluster is None or engine is None:
        return None
    lease = ActorLease(
        cluster, namespace=own_namespace or "default", name=settings.reclaim.lease, holder=holder, wall_clock=clock
    )
    components = ReclaimComponents(
        cluster=cluster,
        journal=Journal(engine, cluster.read_uid),
        switch=Switch(engine, cluster, namespace=own_namespace),
        lease=lease,
        policies=policies or WatchedPolicies(settings.reclaim.policy_file),
        sender=sender,
        source=source,
        read_chance=read_chance,
        read_snoozes=lambda now: _read_snoozes(engine, now),
        own_namespace=own_namespace,
        clock=clock,
        on_step=on_step,
    )
    return Reclaimer(settings.reclaim, components)


def _read_snoozes(engine: Engine, now: float) -> Mapping[WorkloadKey, float]:
    """Raises SourceError."""
    try:
        with engine.connect() as connection:
            return {key: snooze.until for key, snooze in active_snoozes(connection, now).items()}
    except SQLAlchemyError as error:
        raise SourceError(messages.JOURNAL_UNREADABLE, reason=describe_error(error)) from error
