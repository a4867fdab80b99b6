"""The ledger as the pipeline and the API use it. With `ledger.enabled: false` nothing is recorded, and reports fail."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.resumption import NO_HISTORY, SpellHistory
from gpusteward.analyzer.ledger.database.db_engine import describe_error, show_url, with_write_lock
from gpusteward.analyzer.ledger.database.leadership import Leadership
from gpusteward.analyzer.ledger.database.periods import DAY_MS
from gpusteward.analyzer.ledger.last_gpus import ClusterNode, LastGpus, NodeGpus, read_last_gpus, read_node_gpus
from gpusteward.analyzer.ledger.ledger import Ledger
from gpusteward.analyzer.ledger.pool_hours import HOUR_MINUTES, read_minutes, write_minutes
from gpusteward.analyzer.ledger.snoozes import Snooze, active_snoozes, add_snooze, end_snooze
from gpusteward.analyzer.ledger.spells.spell_memory import SpellMemory
from gpusteward.analyzer.notify.outbox.records import list_delivery_keys
from gpusteward.analyzer.pool_minutes import PoolMinutes
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.reclaim.lending import LendableGpus, lend_result
from gpusteward.analyzer.reports.report import Charge, EndedWorkload, GroupDetails, Report
from gpusteward.analyzer.reports.report_query import (
    LABEL_PREFIX,
    ClusterNamespace,
    EndedQuery,
    ReportQuery,
    check_grouping,
)
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.analyzer.spell_table import SpellTable
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.core.namespaces import VisibleNamespaces, sees
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.messages.errors import api_errors, ledger_errors

if TYPE_CHECKING:
    from gpusteward.analyzer.reports.workload_history import WorkloadHistory


class LedgerAccess:
    """`restore` and `record` are for the thread that runs cycles; the other methods are for any thread."""

    def __init__(
        self,
        settings: LedgerSettings,
        read_prices: Callable[[], PriceSettings],
        read_teams: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`read_prices` and `read_teams` return the settings in effect. Raises ConfigurationError for a URL that cannot
        be used."""
        self._read_prices, self._read_teams = read_prices, read_teams
        self._ledger = Ledger(settings) if settings.enabled else None
        self.lendable: Sequence[LendableGpus] = ()  # as of the last recorded cycle
        self._spells = SpellMemory(self._ledger.engine) if self._ledger else None
        self._pools_written: int | None = None  # up to this minute; None: nothing by this process
        self.leadership = Leadership(self.engine, lease_seconds=settings.lease_seconds)

    @property
    def engine(self) -> Engine | None:
        """The database; None where the ledger is disabled."""
        return self._ledger.engine if self._ledger else None

    @property
    def location(self) -> str:
        """Where the ledger is: a path or a URL without password."""
        if self._ledger is None:
            return "disabled"
        return show_url(self._ledger.engine).removeprefix("sqlite:///")

    def restore(self, table: UsageTable) -> VerdictHistory:
        """What the ledger has of these allocations."""
        if self._ledger is None:
            return VerdictHistory()
        from gpusteward.analyzer.ledger.spells.restore_state import restore_history

        return restore_history(self._ledger.engine, table)

    def read_last_gpus(self) -> LastGpus | None:
        """When there were GPUs last; None: never, or the ledger is disabled. Raises SourceError."""
        if self._ledger is None:
            return None
        from gpusteward.analyzer.reports.ledger_sums.ledger_extent import read_ledger

        with read_ledger(self._ledger.engine) as connection:
            return read_last_gpus(connection, time.time_ns() // 1_000_000)

    def read_node_gpus(self) -> Mapping[ClusterNode, NodeGpus]:
        """What nodes had within the last day. Raises SourceError."""
        if self._ledger is None:
            return {}
        from gpusteward.analyzer.reports.ledger_sums.ledger_extent import read_ledger

        now_ms = time.time_ns() // 1_000_000
        with read_ledger(self._ledger.engine) as connection:
            return read_node_gpus(connection, now_ms - DAY_MS, now_ms)

    def read_clusters(self, present: Collection[str]) -> Sequence[tuple[str, str]]:
        """See `ledger.spells.restore_state`; none where the ledger is disabled. Raises SourceError."""
        if self._ledger is None:
            return ()
        from gpusteward.analyzer.ledger.spells.restore_state import read_clusters
        from gpusteward.analyzer.reports.ledger_sums.ledger_extent import read_ledger

        with read_ledger(self._ledger.engine) as connection:
            return read_clusters(connection, present)

    def record(self, result: Result) -> None:
        if self._ledger is not None:
            self._ledger.record(result)

    def record_pools(self, pools: Mapping[WorkloadKey, PoolMinutes]) -> None:
        """What was not written yet. Raises SourceError."""
        if self._ledger is None or not pools:
            return
        end = max(each.end for each in pools.values())
        since = self._pools_written or end - HOUR_MINUTES
        with self._writing() as connection:
            write_minutes(connection, pools, since=since)
        self._pools_written = end

    def read_pools(self, since: float, *, visible: VisibleNamespaces | None) -> Mapping[WorkloadKey, PoolMinutes]:
        """What the replicas of pools did in each minute since then; none where the ledger is disabled. Raises
        SourceError."""
        if self._ledger is None:
            return {}
        try:
            found = read_minutes(self._ledger.engine, since=since)
        except SQLAlchemyError as error:
            raise SourceError(ledger_errors.NOT_READABLE, reason=describe_error(error)) from error
        return {key: each for key, each in found.items() if sees(visible, key)}

    @property
    def spell_history(self) -> SpellHistory:
        """The idle spells up to the last recorded cycle; empty where the ledger is disabled."""
        return self._spells.history if self._spells else NO_HISTORY

    def update_spell_history(self, result: Result) -> None:
        """Read what ended since the last time. May take as long as the database."""
        if self._spells is not None:
            self._spells.update(result)
            self.lendable = lend_result(replace(result, spells=self._spells.history))

    def read_spells(self, since: float, *, visible: VisibleNamespaces | None) -> SpellTable:
        """The idle spells since then. May take as long as the database. Raises SourceError, also where the ledger is
        disabled."""
        from gpusteward.analyzer.ledger.spells.spell_reader import read_spells

        engine = self._open()
        try:
            table = read_spells(engine, since=since)
        except SQLAlchemyError as error:
            raise SourceError(ledger_errors.NOT_READABLE, reason=describe_error(error)) from error
        if visible is None:
            return table
        return table.select_workloads(np.array([sees(visible, key) for key in table.workloads], np.bool_))

    def hand_over(self) -> None:
        """Another analyzer on the same ledger writes from now on, or did until now."""
        if self._ledger is not None:
            self._ledger.hand_over()

    def read_report(self, query: ReportQuery, *, visible: VisibleNamespaces | None) -> Report:
        """May take as long as the database. Raises SourceError, also where the ledger is disabled, and
        ConfigurationError for a label that is not recorded."""
        ledger = self._require()
        check_grouping(query.by, ledger.settings.labels)
        from gpusteward.analyzer.reports.make_report import (
            make_report,  # 2 MB that are not needed before the first report
        )

        query = replace(query, visible=self._list_visible(visible))
        return make_report(ledger.engine, query, prices=self._read_prices(), teams=self._read_teams())

    def read_group_details(self, query: ReportQuery, *, visible: VisibleNamespaces | None) -> GroupDetails:
        """May take as long as the database. Raises SourceError and ConfigurationError, as `read_report` does."""
        ledger = self._require()
        check_grouping(query.by, ledger.settings.labels)
        from gpusteward.analyzer.reports.group_details import read_group_details

        query = replace(query, visible=self._list_visible(visible))
        details = read_group_details(ledger.engine, query, teams=self._read_teams())
        return replace(details, groupings=self._list_groupings())

    def _list_groupings(self) -> list[str]:
        """What people can be grouped by with these settings."""
        labels = self._ledger.settings.labels if self._ledger else ()
        return ["namespace", *(["team"] if self._read_teams() else []), "user", *(LABEL_PREFIX + key for key in labels)]

    def _list_visible(self, visible: VisibleNamespaces | None) -> tuple[ClusterNamespace, ...] | None:
        """Those of the recorded namespaces; None: everything. Raises SourceError."""
        if visible is None:
            return None
        from gpusteward.analyzer.reports.ledger_sums.ledger_extent import read_namespaces

        return tuple(each for each in read_namespaces(self._open()) if visible.includes(*each))

    def read_ended_workloads(self, query: EndedQuery, *, visible: VisibleNamespaces | None) -> list[EndedWorkload]:
        """May take as long as the database. Raises SourceError, also where the ledger is disabled."""
        ledger = self._require()
        from gpusteward.analyzer.reports.ended_workloads import read_ended_workloads

        query = replace(query, visible=self._list_visible(visible))
        return read_ended_workloads(ledger.engine, query, prices=self._read_prices())

    def read_charges(self, query: ReportQuery, *, visible: VisibleNamespaces | None) -> Iterator[Charge]:
        """The rows of a FOCUS export. Raises SourceError and ConfigurationError while they are read."""
        ledger = self._require()
        from gpusteward.analyzer.reports.focus import read_charges

        query = replace(query, visible=self._list_visible(visible))
        return read_charges(ledger.engine, query, prices=self._read_prices(), teams=self._read_teams())

    def read_history(
        self, workload: WorkloadKey, *, limit: int, visible: VisibleNamespaces | None
    ) -> "WorkloadHistory":
        """Without channels and deliveries for somebody who sees some namespaces: they belong to the whole site. May
        take as long as the database. Raises SourceError, also where the ledger is disabled."""
        from gpusteward.analyzer.reports.workload_history import WorkloadHistory, read_workload_history

        if not sees(visible, workload):
            return WorkloadHistory((), (), (), ())
        history = read_workload_history(self._open(), workload, limit=limit, list_keys=list_delivery_keys)
        if visible is None:
            return history
        return replace(history, notices=[replace(each, channel="", deliveries=()) for each in history.notices])

    def read_snoozes(self, at: float, *, visible: VisibleNamespaces | None) -> Mapping[WorkloadKey, Snooze]:
        """Those that are active. May take as long as the database. Raises SourceError."""
        from gpusteward.analyzer.reports.ledger_sums.ledger_extent import read_ledger

        with read_ledger(self._open()) as connection:
            found = active_snoozes(connection, at)
        return {workload: snooze for workload, snooze in found.items() if sees(visible, workload)}

    def add_snooze(self, workload: WorkloadKey, *, until: float, reason: str, who: str, at: float) -> Snooze:
        """May take as long as the database. Raises SourceError."""
        with self._writing() as connection:
            return add_snooze(connection, workload, until=until, reason=reason, who=who, at=at)

    def end_snooze(self, workload: WorkloadKey, *, who: str, at: float) -> bool:
        """Whether there was one. May take as long as the database. Raises SourceError."""
        with self._writing() as connection:
            return end_snooze(connection, workload, who=who, at=at)

    def _require(self) -> Ledger:
        """Raises SourceError where the ledger is disabled."""
        if self._ledger is None:
            raise SourceError(api_errors.LEDGER_DISABLED)
        return self._ledger

    def _open(self) -> Engine:
        return self._require().engine

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        engine = self._open()
        try:
            with with_write_lock(engine).begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise SourceError(ledger_errors.NOT_WRITABLE, reason=describe_error(error)) from error

    def describe(self) -> Mapping[str, Any] | None:
        """The state of the ledger without its password; None where it is disabled."""
        if self._ledger is None:
            return None
        described, error = self._ledger.describe(), self.leadership.error
        # A reader writes nothing but its lease: that shows whether the database responds.
        return described if self.leadership.is_leader or not error else {**described, "is_ready": False, "error": error}

    def close(self) -> None:
        if self._ledger is not None:
            self._ledger.close()
