"""The ledger as the pipeline and the API use it. With `ledger.enabled: false` nothing is recorded, and reports fail."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Engine

from gpusteward.analyzer.judge.history import History
from gpusteward.analyzer.ledger.db_engine import show_url
from gpusteward.analyzer.ledger.leadership import Leadership
from gpusteward.analyzer.ledger.ledger import Ledger
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.reports.charges import Charge
from gpusteward.analyzer.reports.report import (
    LABEL_PREFIX,
    EndedQuery,
    EndedWorkload,
    GroupDetails,
    Report,
    ReportQuery,
    check_grouping,
)
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.messages import api_errors


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

    def restore(self, table: UsageTable) -> History:
        """What the ledger has of these allocations."""
        if self._ledger is None:
            return History()
        from gpusteward.analyzer.ledger.restore_state import restore_history

        return restore_history(self._ledger.engine, table)

    def record(self, result: Result) -> None:
        if self._ledger is not None:
            self._ledger.record(result)

    def hand_over(self) -> None:
        """Another analyzer on the same ledger writes from now on, or did until now."""
        if self._ledger is not None:
            self._ledger.hand_over()

    def read_report(self, query: ReportQuery) -> Report:
        """May take as long as the database. Raises SourceError, also where the ledger is disabled, and
        ConfigurationError for a label that is not recorded."""
        if self._ledger is None:
            raise SourceError(api_errors.LEDGER_DISABLED)
        check_grouping(query.by, self._ledger.settings.labels)
        from gpusteward.analyzer.reports.make_report import (
            make_report,  # 2 MB that are not needed before the first report
        )

        return make_report(self._ledger.engine, query, prices=self._read_prices(), teams=self._read_teams())

    def read_group_details(self, query: ReportQuery) -> GroupDetails:
        """May take as long as the database. Raises SourceError and ConfigurationError, as `read_report` does."""
        if self._ledger is None:
            raise SourceError(api_errors.LEDGER_DISABLED)
        check_grouping(query.by, self._ledger.settings.labels)
        from gpusteward.analyzer.reports.group_details import read_group_details

        details = read_group_details(self._ledger.engine, query, teams=self._read_teams())
        return replace(details, groupings=self._list_groupings())

    def _list_groupings(self) -> list[str]:
        """What people can be grouped by with these settings."""
        labels = self._ledger.settings.labels if self._ledger else ()
        return ["namespace", *(["team"] if self._read_teams() else []), "user", *(LABEL_PREFIX + key for key in labels)]

    def read_namespaces(self) -> list[tuple[str, str]]:
        """Clusters with their namespaces. May take as long as the database. Raises SourceError."""
        if self._ledger is None:
            raise SourceError(api_errors.LEDGER_DISABLED)
        from gpusteward.analyzer.reports.ledger_connection import read_namespaces

        return read_namespaces(self._ledger.engine)

    def read_ended_workloads(self, query: EndedQuery) -> list[EndedWorkload]:
        """May take as long as the database. Raises SourceError, also where the ledger is disabled."""
        if self._ledger is None:
            raise SourceError(api_errors.LEDGER_DISABLED)
        from gpusteward.analyzer.reports.ended_workloads import read_ended_workloads

        return read_ended_workloads(self._ledger.engine, query, prices=self._read_prices())

    def read_charges(self, query: ReportQuery) -> Iterator[Charge]:
        """The rows of a FOCUS export. Raises SourceError and ConfigurationError while they are read."""
        if self._ledger is None:
            raise SourceError(api_errors.LEDGER_DISABLED)
        from gpusteward.analyzer.reports.focus import read_charges

        return read_charges(self._ledger.engine, query, prices=self._read_prices(), teams=self._read_teams())

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
