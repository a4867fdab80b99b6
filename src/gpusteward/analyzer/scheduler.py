"""Runs a cycle every interval in its own thread. A slow cycle delays the next one; cycles never queue up."""

import threading
import time
from collections.abc import Callable

from gpusteward.analyzer.pipeline import CycleStats, Pipeline
from gpusteward.analyzer.settings.settings import Settings


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
        self._use_ai: bool | None = None  # as requested for the next cycle; None: as in the settings

    @property
    def stats(self) -> CycleStats:
        return self._pipeline.stats

    def run(self) -> None:
        while not self._is_stopping:
            started = time.monotonic()
            settings = self._begin_cycle()
            requested, self._use_ai = self._use_ai, None
            self._pipeline.run(settings, at=time.time(), use_ai=settings.ai.enabled if requested is None else requested)
            remaining = started + settings.scheduler.interval - time.monotonic()
            self._wake.wait(min(max(0.0, remaining), threading.TIMEOUT_MAX))
            self._wake.clear()

    def request_cycle(self, *, use_ai: bool | None = None) -> None:
        """Run a cycle as soon as the current one has ended. Several requests meanwhile start one cycle."""
        self._use_ai = self._use_ai if use_ai is None else use_ai  # None keeps what an earlier request chose
        self._wake.set()

    def stop(self, *, timeout_seconds: float) -> None:
        """Stop after the current cycle; return after the timeout even if it has not ended."""
        self._is_stopping = True
        self._wake.set()
        self.join(timeout_seconds)
