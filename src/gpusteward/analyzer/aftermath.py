"""What follows a cycle once its result is up: it is booked, and people are told. Neither can cost a verdict."""

from collections.abc import Callable, Mapping
from typing import Any

from gpusteward.analyzer.judge.history import Memory
from gpusteward.analyzer.ledger.ledger import Ledger
from gpusteward.analyzer.notify.notices.planner import ReadNotifyAnnotation
from gpusteward.analyzer.notify.notifier import Notifier
from gpusteward.analyzer.reports.report import Report, ReportQuery
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.logs import Log

log = Log(__name__)

STOP_SECONDS = 1.0


class Aftermath:
    """`follow` and `follow_failure` are for the thread that runs cycles; the others are for everybody."""

    def __init__(
        self, settings: Settings, poll_settings: Callable[[], Settings], *, read_wish: ReadNotifyAnnotation
    ) -> None:
        """Raises ConfigurationError for a ledger or a channel that cannot be used."""
        self._poll_settings = poll_settings
        self._fault = ""  # of the last booking, if nobody foresaw it
        self.ledger = Ledger(settings.ledger) if settings.ledger.enabled else None
        self.notifier = Notifier(settings, self.ledger.engine if self.ledger else None, read_wish=read_wish)

    def start(self) -> None:
        self.notifier.start()

    def recollect(self, table: UsageTable) -> Memory:
        """What the books know before the first cycle."""
        if self.ledger is None:
            return Memory()
        from gpusteward.analyzer.ledger.restore_state import restore_history

        return restore_history(self.ledger.engine, table)

    def follow(self, result: Result) -> None:
        """Keep, then tell: what is told about money is in the books."""
        if self.ledger is not None:
            self._book(self.ledger, result)
        self.notifier.notify(result)

    def _book(self, ledger: Ledger, result: Result) -> None:
        try:
            ledger.record(result)
            self._fault = ""
        # A fault nobody foresaw costs the books this cycle; the next one books the time since the last that is in them.
        except Exception as error:  # noqa: BLE001
            fault = f"unexpected {type(error).__name__}: {error}"
            if fault != self._fault:
                log.warning("booking_failed", reason=fault)
            self._fault = fault

    def follow_failure(self, reason: str, at: float) -> None:
        self.notifier.announce_outage(reason, at=at)

    def read_report(self, query: ReportQuery) -> Report:
        """Raises SourceError, also where no books are kept."""
        if self.ledger is None:
            raise SourceError("no books are kept here: ledger.enabled is false")
        from gpusteward.analyzer.reports.make_report import make_report  # 2 MB that nobody needs before

        return make_report(self.ledger.engine, query, prices=self._poll_settings().prices)

    def describe(self) -> Mapping[str, Any]:
        """How the books stand, None where none are kept, and how deliveries fare."""
        books = dict(self.ledger.describe()) if self.ledger else None
        if books and self._fault:
            books |= {"is_ready": False, "error": self._fault}
        return {"ledger": books, "deliveries": self.notifier.describe()}

    def stop(self) -> None:
        self.notifier.stop(STOP_SECONDS)
        if self.ledger is not None:
            self.ledger.close()
