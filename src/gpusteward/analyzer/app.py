"""Creates and wires all components of the analyzer; `serve.py` runs them as a program."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool

from gpusteward.analyzer.active_source import ActiveSource
from gpusteward.analyzer.api.build import build_api
from gpusteward.analyzer.api.dependencies import ApiDependencies
from gpusteward.analyzer.api.event_feed import EventFeed
from gpusteward.analyzer.api.publisher import ResultPublisher
from gpusteward.analyzer.api.result_store import ResultStore
from gpusteward.analyzer.api.source_reader import SourceReader
from gpusteward.analyzer.api.v1.health.events import HealthEvents
from gpusteward.analyzer.explain.explainer import Explainer
from gpusteward.analyzer.gpu_presence import GpuPresence, NodePresence
from gpusteward.analyzer.judge.resumption import HALF_HOUR
from gpusteward.analyzer.ledger_access import LedgerAccess
from gpusteward.analyzer.notify.links import LinkSigner
from gpusteward.analyzer.notify.notifier import Notifier
from gpusteward.analyzer.pipeline import Components, Pipeline
from gpusteward.analyzer.pool_watch import PoolWatch
from gpusteward.analyzer.reclaim.build import build_reclaimer
from gpusteward.analyzer.reclaim.cluster import Cluster
from gpusteward.analyzer.reclaim.policies.resolve import WatchedPolicies
from gpusteward.analyzer.reclaim.reclaimer import Reclaimer
from gpusteward.analyzer.runtime_settings import RuntimeSettings
from gpusteward.analyzer.scheduler import CycleScheduler
from gpusteward.analyzer.settings.file import SettingsFile
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.offered_gpus import OfferedGpus
from gpusteward.analyzer.sources.owners.cluster_owners import ClusterOwners
from gpusteward.analyzer.sources.promql.query_plan import device_matchers
from gpusteward.analyzer.sources.usage.selectors import parse_condition
from gpusteward.http_server.web_config import WebConfig, WebConfigFile

RELOAD_SECONDS = 2.0
"""How often the files of settings and tokens are checked for changes; a check costs three stat calls."""
CYCLE_GRACE_SECONDS = 1.5
NOTIFIER_GRACE_SECONDS = 1.0
"""Time to end a cycle and deliveries. With the grace period of HTTP requests, the program ends within 5 s."""


class Analyzer:
    """Creates all components and connects them; starts and stops their threads."""

    def __init__(
        self,
        file: SettingsFile,
        *,
        owners: ClusterOwners | None = None,
        cluster: Cluster | None = None,
        own_namespace: str = "",
        offered: OfferedGpus | None = None,
    ) -> None:
        """Raises ConfigurationError for unusable settings. Without `owners`, owners come from metric labels; without
        `cluster`, nothing is reclaimed. `own_namespace`: of this pod. `offered`: the GPUs that nodes offer; without it
        a site without GPUs is never taken for one without GPU nodes."""
        settings, owners = file.settings, owners or ClusterOwners(None)
        self.source, self.explainer = ActiveSource(settings), Explainer(settings.ai)
        self.settings = RuntimeSettings(file, source=self.source, explainer=self.explainer)
        path = settings.server.web_config_file
        self._web_file = WebConfigFile(path) if path else None
        self.ledger = LedgerAccess(
            settings.ledger, lambda: self.settings.current.prices, lambda: self.settings.current.reports.teams
        )
        owners.use_ledger(self.ledger.read_clusters)
        self.leadership = self.ledger.leadership
        if cluster is not None:
            self.leadership.read_cluster_uid = cluster.read_uid
        self._links = LinkSigner.open(settings.reclaim)
        self.notifier = self._make_notifier(settings, owners)
        self._policies = WatchedPolicies(settings.reclaim.policy_file)
        self.reclaimer = self._make_reclaimer(settings, cluster, own_namespace)
        self.results, self.events = ResultStore(), EventFeed()
        own_cluster = settings.kubernetes.cluster
        nodes = NodePresence(self.ledger.read_node_gpus, offered, own_cluster, self._reads_all_nodes)
        self._presence = GpuPresence(self.ledger.read_last_gpus, offered, own_cluster, nodes)
        self._pipeline = self._make_pipeline(owners)
        self.scheduler = CycleScheduler(self._pipeline, self.settings.begin_cycle)
        self.leadership.may_lead = lambda: not self.scheduler.defect
        self.leadership.on_change = self._change_leader
        dependencies = self._make_dependencies()
        self._health_events = HealthEvents(dependencies)
        self.api = build_api(dependencies, lifespan=self._run_lifespan)

    def _reads_all_nodes(self) -> bool:
        """Whether no condition on devices leaves nodes out."""
        return not device_matchers(parse_condition(self.settings.current.prometheus.query_condition))

    def _make_notifier(self, settings: Settings, owners: ClusterOwners) -> Notifier:
        return Notifier(
            settings,
            self.ledger.engine,
            links=self._links,
            read_notify_annotation=owners.read_notify_annotation,
            may_send=lambda: self.leadership.holds_lease,
        )

    def _make_reclaimer(self, settings: Settings, cluster: Cluster | None, own_namespace: str) -> Reclaimer | None:
        return build_reclaimer(
            settings,
            policies=self._policies,
            cluster=cluster,
            engine=self.ledger.engine,
            sender=self.notifier,
            source=self.source,
            holder=self.leadership.holder,
            own_namespace=own_namespace,
            read_chance=lambda key, age, _now: self.ledger.spell_history.estimate(key, age=age, horizon=HALF_HOUR),
        )

    def _make_pipeline(self, owners: ClusterOwners) -> Pipeline:
        return Pipeline(
            Components(
                source=self.source,
                owners=owners,
                explainer=self.explainer,
                publisher=ResultPublisher(self.results, self.events),
                presence=self._presence,
                ledger=self.ledger,
                notifier=self.notifier,
                reclaimer=self.reclaimer,
                is_leader=self.leadership.renew,
                pools=PoolWatch(
                    self.source,
                    read_managed=self.reclaimer.list_pools if self.reclaimer else dict,
                    read_minutes=lambda since: self.ledger.read_pools(since, visible=None),
                ),
            )
        )

    def _make_dependencies(self) -> ApiDependencies:
        return ApiDependencies(
            results=self.results,
            events=self.events,
            cycles=self.scheduler,
            settings=self.settings,
            source=SourceReader(self.source),
            ledger=self.ledger,
            deliveries=self.notifier,
            reclaim=self.reclaimer,
            links=self._links,
            policies=self._policies,
            leadership=self.leadership,
            model_calls=self.explainer.counters,
            web=self.web,
        )

    @asynccontextmanager
    async def _run_lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        """Start all threads with the HTTP server, and stop them at its end."""
        self.events.open()
        await run_in_threadpool(len, "")  # loads what threads need, so that the first request does not wait for it
        self.notifier.start()
        self.scheduler.start()
        await run_in_threadpool(self.leadership.start)
        watch = asyncio.create_task(self._watch_files())
        try:
            yield
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch
            await asyncio.to_thread(self._stop)

    def web(self) -> WebConfig:
        """TLS and access of the HTTP server; reads no file."""
        return self._web_file.config if self._web_file else WebConfig()

    def _stop(self) -> None:
        self.scheduler.stop(timeout_seconds=CYCLE_GRACE_SECONDS)
        self._pipeline.requests.join(CYCLE_GRACE_SECONDS)
        if self.reclaimer is not None:
            self.reclaimer.close()
        self.notifier.stop(NOTIFIER_GRACE_SECONDS)
        self.leadership.stop()
        self.ledger.close()

    def _change_leader(self) -> None:
        """A new leader records at once: the time since the last recorded cycle is known for three intervals only."""
        self.ledger.hand_over()
        self.notifier.hand_over()
        if self.leadership.is_leader:
            self.scheduler.request_cycle()

    async def _watch_files(self) -> None:
        """A changed file takes effect at once, not at the end of an interval of minutes; listeners learn of a changed
        health as soon."""
        while True:
            await asyncio.sleep(RELOAD_SECONDS)
            self._health_events.check()
            if self._web_file is not None:
                await asyncio.to_thread(self._web_file.current)
            await asyncio.to_thread(self._policies.poll)  # also in mode off and in readers: health shows its error
            if await asyncio.to_thread(self.settings.reload):
                self.scheduler.request_cycle()

    def interrupt(self) -> None:
        """Close all connections to other systems: whatever waits for them returns. May be called from any thread."""
        self.explainer.interrupt()
        self.source.close()
