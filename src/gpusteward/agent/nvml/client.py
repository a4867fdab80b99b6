"""`Nvml`: reads all GPUs and GPU processes of this node once per cycle."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from gpusteward.agent.nvml.events import LifetimeCounters
from gpusteward.agent.nvml.gpu_reader import ReadResult
from gpusteward.agent.nvml.library import DriverGoneError
from gpusteward.agent.nvml.session import Session
from gpusteward.core.errors import SourceError
from gpusteward.core.gpus import GpuProcess, GpuReading
from gpusteward.core.snapshots import Failure
from gpusteward.logs import Log
from gpusteward.messages.errors import nvml_errors as messages

log = Log(__name__)

EVENT_WAIT_MILLISECONDS = 1000
"""How long the XID thread waits in the driver; `release` may take as long."""

RELEASE_SECONDS = 10.0
"""How long `release` waits for a read to end. A read that hangs in the driver cannot be cancelled."""


@dataclass(frozen=True, slots=True)
class NvmlReading:
    """All GPUs, each followed by its MIG instances; the processes on them; failures."""

    readings: tuple[GpuReading, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    failures: tuple[Failure, ...] = ()


class Nvml:
    """NVML of this node. A read opens it if needed, also again after the driver was unloaded."""

    def __init__(
        self,
        node: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        event_wait_milliseconds: int = EVENT_WAIT_MILLISECONDS,
    ) -> None:
        self._node = node
        self._clock = clock
        self._event_wait_milliseconds = event_wait_milliseconds
        self._counters = LifetimeCounters()
        self._session: Session | None = None
        self._lock = threading.Lock()

    def read(self, wanted: frozenset[str], *, peers: bool = False) -> NvmlReading:
        """Read the wanted signals (names of `core.signals`) and the processes of every GPU.

        Raises SourceError when NVML cannot be used at all; the next read tries to open it again.
        """
        with self._lock:
            try:
                result = self._read(wanted, peers)
            except DriverGoneError as error:
                self._close()
                log.warning("nvml_gone", reason=error)
                raise SourceError(messages.DRIVER_GONE, reason=error) from error
        return NvmlReading(tuple(result.readings), tuple(result.processes), tuple(result.failures))

    def release(self) -> None:
        """Free all handles, so that the driver can be unloaded or a GPU reset. The next read opens NVML again."""
        if not self._lock.acquire(timeout=RELEASE_SECONDS):
            log.error("nvml_not_released", reason="a call hangs in the driver", seconds=RELEASE_SECONDS)
            return
        try:
            self._close()
        finally:
            self._lock.release()

    def _read(self, wanted: frozenset[str], peers: bool) -> ReadResult:
        if self._session is not None and self._session.has_changed():
            self._close()
        if self._session is None:
            self._session = Session(
                self._node,
                self._counters,
                clock=self._clock,
                event_wait_milliseconds=self._event_wait_milliseconds,
            )
        return self._session.read(wanted, peers=peers)

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()
