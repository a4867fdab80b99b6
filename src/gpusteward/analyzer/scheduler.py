"""Runs a cycle every interval in its own thread. A slow cycle delays the next one; cycles never queue up."""

import threading
import time
from collections.abc import Callable

from gpusteward.analyzer.pipeline import CycleStats, Pipeline
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.settings import Settings

STUCK_SECONDS = 1800.0
"""The longest cycles take minutes: every request of a cycle is limited in time. What runs longer hangs."""
FIRST_SECONDS = 600.0
FIRST_INTERVAL_SECONDS = 15.0
"""After an installation the agents start at the same time as the analyzer: for so long, cycles follow each other faster
until the first one has something to judge."""


class CycleScheduler(threading.Thread):
    """The thread that runs cycles."""

    def __init__(
        self, pipeline: Pipeline, begin_cycle: Callable[[], Settings], *, wake: threading.Event | None = None
    ) -> None:
        """`begin_cycle` returns the settings of the next cycle. `wake` is set to end the wait between two cycles."""
        super().__init__(name="cycle", daemon=True)
        self._pipeline = pipeline
        self._begin_cycle = begin_cycle
        self._wake = wake or threading.Event()
        self._is_stopping = False
        self._is_requested = False  # a cycle, before the interval has passed
        self._has_opinions = False
        pipeline.on_opinions = self._receive_opinions
        self._use_ai: bool | None = None  # as requested for the next cycle; None: as in the settings
        self._running_since: float | None = None  # monotonic time at which the current cycle began
        self._first_until = time.monotonic() + FIRST_SECONDS  # until then, or the first allocation

    @property
    def stats(self) -> CycleStats:
        return self._pipeline.stats

    @property
    def defect(self) -> str:
        """Why there will be no more results without a restart; empty: nothing is wrong."""
        if not self.is_alive():
            return "the thread that runs cycles has ended"
        since = self._running_since
        seconds = 0.0 if since is None else time.monotonic() - since
        return f"a cycle has been running for {seconds:.0f} s" if seconds > STUCK_SECONDS else ""

    def run(self) -> None:
        while not self._is_stopping:
            self._running_since = started = time.monotonic()
            interval = self._run_cycle()
            self._running_since = None
            self._wait_until(started + interval)

    def _run_cycle(self) -> float:
        """Returns the seconds to the next cycle. A function of its own, so that the result is not kept in memory while
        the next one is made."""
        self._is_requested = False
        settings = self._begin_cycle()
        requested, self._use_ai = self._use_ai, None
        use_ai = settings.ai.enabled if requested is None else requested
        result = self._pipeline.run(settings, at=time.time(), use_ai=use_ai)
        return self._choose_interval(settings, result)

    def _choose_interval(self, settings: Settings, result: Result | None) -> float:
        if result is not None and len(result.verdicts):
            self._first_until = 0.0
        interval = settings.scheduler.interval
        return min(interval, FIRST_INTERVAL_SECONDS) if time.monotonic() < self._first_until else interval

    def _wait_until(self, due: float) -> None:
        """Until then, or until a cycle is requested. Opinions that arrive meanwhile are published."""
        while True:
            self._wake.wait(min(max(0.0, due - time.monotonic()), threading.TIMEOUT_MAX))
            self._wake.clear()
            if not self._has_opinions:
                return
            self._has_opinions = False
            self._pipeline.publish_opinions()
            if self._is_requested or self._is_stopping:
                return

    def _receive_opinions(self) -> None:
        """Called in another thread."""
        self._has_opinions = True
        self._wake.set()

    def request_cycle(self, *, use_ai: bool | None = None) -> None:
        """Run a cycle as soon as the current one has ended. Several requests meanwhile start one cycle."""
        self._use_ai = self._use_ai if use_ai is None else use_ai  # None keeps what an earlier request chose
        self._is_requested = True
        self._wake.set()

    def stop(self, *, timeout_seconds: float) -> None:
        """Stop after the current cycle; return after the timeout even if it has not ended."""
        self._is_stopping = True
        self._wake.set()
        self.join(timeout_seconds)
