"""Runs a cycle every interval in a thread of its own: a slow engine delays, it never piles up."""

import threading
import time
from collections.abc import Callable

from gpusteward.analyzer.cycle import Cycle
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.core.errors import SourceError
from gpusteward.logs import Log

log = Log(__name__)

DURATION_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class Account:
    """What the cycles since the start came to. Written by the worker, read by anybody."""

    def __init__(self) -> None:
        self.finished = 0
        self.failed = 0
        self.last_error = ""
        self.last_ended_at: float | None = None  # unix seconds
        self.seconds_total = 0.0
        self.duration_counts = [0] * len(DURATION_BUCKETS)  # cumulative, as Prometheus counts

    def note(self, seconds: float) -> None:
        self.seconds_total += seconds
        for number, limit in enumerate(DURATION_BUCKETS):
            self.duration_counts[number] += seconds <= limit


class Worker(threading.Thread):
    """The thread that runs cycles."""

    def __init__(
        self,
        cycle: Cycle,
        poll_settings: Callable[[], Settings],
        publish: Callable[[Result], None],
        lament: Callable[[str, float], None] = lambda _reason, _at: None,
    ) -> None:
        """`publish` hears of every result, `lament` why there is none, and when."""
        super().__init__(name="cycle", daemon=True)
        self._lament = lament
        self._cycle = cycle
        self._poll_settings = poll_settings
        self._publish = publish
        self._wake = threading.Event()
        self._stopping = False
        self._ask_model: bool | None = None  # what the next cycle was asked to do; None: as the settings say
        self.account = Account()

    def run(self) -> None:
        while not self._stopping:
            started = time.monotonic()
            settings = self._poll_settings()
            self._run_once(settings)
            self._wake.wait(max(0.0, started + settings.scheduler.interval - time.monotonic()))
            self._wake.clear()

    def ask_cycle(self, *, use_ai: bool | None = None) -> None:
        """Run one as soon as the one under way is over; asked several times, it still runs once."""
        self._ask_model = self._ask_model if use_ai is None else use_ai  # a plain wish takes no wish for the model away
        self._wake.set()

    def stop(self, *, timeout_seconds: float) -> None:
        """Stop after the cycle under way, or leave it behind when the time is over."""
        self._stopping = True
        self._wake.set()
        self.join(timeout_seconds)

    def _run_once(self, settings: Settings) -> None:
        asked, self._ask_model = self._ask_model, None
        started = time.monotonic()
        try:
            result = self._cycle.run(settings, at=time.time(), use_ai=settings.ai.enabled if asked is None else asked)
            self._publish(result)
            self.account.finished += 1
            self.account.last_error = ""
            log.info(
                "cycle_finished",
                number=result.number,
                allocations=len(result.verdicts),
                seconds=f"{result.seconds:.2f}",
            )
        except SourceError as error:
            self._fail(str(error))
        # A fault nobody foresaw costs this cycle: the last result stands and grows old, the next cycle tries again.
        except Exception as error:  # noqa: BLE001
            self._fail(f"unexpected {type(error).__name__}: {error}")
        self.account.note(time.monotonic() - started)
        self.account.last_ended_at = time.time()

    def _fail(self, reason: str) -> None:
        self.account.failed += 1
        if reason != self.account.last_error:
            log.warning("cycle_failed", reason=reason)
        self.account.last_error = reason
        self._lament(reason, time.time())
