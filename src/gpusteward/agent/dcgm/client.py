"""`Dcgm`: adds profiling signals to the readings of GPUs that NVML cannot profile. Its session with the hostengine is
opened when needed, and again after the hostengine was lost.
"""

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gpusteward.agent.dcgm.library import CONNECTION_NOT_VALID, SONAMES, DcgmError, Library
from gpusteward.agent.dcgm.session import (
    SIGNALS,
    DcgmSession,
    ProfiledDevice,
    Samples,
    choose_watch_seconds,
)
from gpusteward.agent.settings.values import Hostengine
from gpusteward.core.dcgm import FIELDS
from gpusteward.core.errors import SourceError
from gpusteward.core.node.gpus import GpuReading
from gpusteward.core.node.signals import SIGNALS as ALL_SIGNALS
from gpusteward.core.node.signals import Scope
from gpusteward.core.node.snapshots import Failure
from gpusteward.logs import Log
from gpusteward.messages.errors import dcgm_errors as messages

log = Log(__name__)

LOCAL = Hostengine("tcp", "localhost:5555")
EMBEDDED = Hostengine("embedded")
FIRST_BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class DcgmResult:
    """The samples of one read, and the reasons why some are missing."""

    samples: Samples = field(default_factory=dict)
    failures: Sequence[Failure] = ()


class DcgmReader:
    """Reads a hostengine. While it cannot be reached, it is tried again after growing delays."""

    def __init__(self, hostengine: Hostengine, *, interval_seconds: float, sonames: Sequence[str] = SONAMES) -> None:
        self.hostengine = hostengine  # never `auto` once a session was open
        self._interval = interval_seconds
        self._sonames = sonames
        self._session: DcgmSession | None = None
        self._backoff = 0.0
        self._failed_at = 0.0
        self._failure: Failure | None = None

    def read(self, targets: tuple[ProfiledDevice, ...], fields: frozenset[int], *, now: float) -> DcgmResult:
        """The latest samples. A failure closes the session; one of the next reads opens a new one."""
        if self._failure is not None and 0 <= now - self._failed_at < self._backoff:
            return DcgmResult(failures=(self._failure,))
        try:
            samples, failures = self._open().read(targets, fields, now=now)
        except SourceError as error:
            self.close()
            self._failed_at = now
            self._backoff = min(max(2 * self._backoff, FIRST_BACKOFF_SECONDS), MAX_BACKOFF_SECONDS)
            reason = messages.UNREACHABLE.text("en", hostengine=self.hostengine, reason=error)
            self._failure = Failure("dcgm", reason)
            return DcgmResult(failures=(self._failure,))
        self._failure, self._backoff = None, 0.0
        return DcgmResult(samples, failures)

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _open(self) -> DcgmSession:
        """Raises SourceError."""
        if self._session is None:
            self.hostengine, self._session = open_session(
                self.hostengine, interval_seconds=self._interval, sonames=self._sonames
            )
        return self._session


def open_session(
    hostengine: Hostengine, *, interval_seconds: float, sonames: Sequence[str] = SONAMES
) -> tuple[Hostengine, DcgmSession]:
    """A session, and the hostengine it is with. Raises SourceError.

    `auto` prefers a hostengine that runs here: two of them on one machine would compete for the profiling hardware.
    """
    library = Library(sonames)
    if hostengine.kind == "auto":
        try:
            session = DcgmSession(library, LOCAL, interval_seconds=interval_seconds)
            hostengine = LOCAL
        except DcgmError as error:
            if error.code != CONNECTION_NOT_VALID:
                raise
            session = DcgmSession(library, EMBEDDED, interval_seconds=interval_seconds)
            hostengine = EMBEDDED
    else:
        session = DcgmSession(library, hostengine, interval_seconds=interval_seconds)
    log.info(
        "dcgm_opened", hostengine=hostengine, version=session.version, library=library.name, gpus=len(session.gpu_ids)
    )
    return hostengine, session


@dataclass(frozen=True, slots=True)
class HostengineReport:
    """A hostengine that responds, and the fields it can give for each GPU."""

    hostengine: Hostengine
    version: str
    fields_by_gpu: dict[str, tuple[str, ...]]  # uuid -> names of fields


def describe_hostengine(hostengine: Hostengine, *, sonames: Sequence[str] = SONAMES) -> HostengineReport:
    """Connect, ask what each GPU supports, disconnect. Watches nothing. Raises SourceError."""
    found, session = open_session(hostengine, interval_seconds=1.0, sonames=sonames)
    try:
        ids = {uuid: session.list_supported(gpu_id) & SIGNALS.keys() for uuid, gpu_id in session.gpu_ids.items()}
        fields = {uuid: tuple(each.name for each in FIELDS if each.id in ids[uuid]) for uuid in ids}
        return HostengineReport(found, session.version, fields)
    finally:
        session.close()


VALID_INTERVALS = 2
"""How old a value may be; an older one is unknown."""

WAIT_SECONDS = 1.0
"""How long a cycle waits for the hostengine, at most half an interval. A hostengine that hangs is waited for once."""

CLOSE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class DcgmReading:
    """The readings, with the signals of the hostengine; failures."""

    readings: tuple[GpuReading, ...]
    failures: Sequence[Failure] = ()


@dataclass(frozen=True, slots=True)
class _ReadRequest:
    targets: tuple[ProfiledDevice, ...] = ()
    fields: frozenset[int] = frozenset()
    now: float = 0.0


class Dcgm:
    """A DCGM hostengine, read by a thread of its own, which starts when there is a GPU to read."""

    def __init__(self, reader: DcgmReader, *, interval_seconds: float) -> None:
        self._reader = reader
        self._interval = interval_seconds
        self._changed = threading.Condition()
        self._request: _ReadRequest | None = None  # what the thread works on
        self._is_closing = False  # the thread closes the session after that
        self._result = DcgmResult()
        self._thread: threading.Thread | None = None

    def read(self, readings: tuple[GpuReading, ...], wanted: frozenset[str], *, now: float) -> DcgmReading:
        """Add the wanted signals that NVML lacks. Waits for the hostengine for a moment at most."""
        targets = list_targets(readings)
        fields = frozenset(number for number, signal in SIGNALS.items() if signal in wanted)
        if not targets or not fields:
            return DcgmReading(readings)
        result = self._ask(_ReadRequest(targets, fields, now))
        return DcgmReading(tuple(self._add(each, result, now) for each in readings), result.failures)

    def close(self) -> None:
        """Close the session, which frees the driver where the engine is embedded. The next read opens a new one.

        While a call hangs, returns after a moment; the session is then closed when the call returns.
        """
        with self._changed:
            if self._thread is None:
                return
            self._is_closing = True
            self._start_thread()
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: not self._is_closing, CLOSE_SECONDS):
                log.warning("dcgm_close_delayed", hostengine=self._reader.hostengine)

    def _ask(self, request: _ReadRequest) -> DcgmResult:
        """The result of this request, or the last one if the thread does not respond in time."""
        with self._changed:
            if self._request is None:
                self._start_thread()  # before the request: one that no thread serves would be waited for in every cycle
                self._request = request
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._request is None, min(WAIT_SECONDS, self._interval / 2))
            waiting = self._request
            if waiting is None or 0 <= request.now - waiting.now <= VALID_INTERVALS * self._interval:
                return self._result
            reason = messages.NOT_RESPONDING.text("en", hostengine=self._reader.hostengine)
            return replace(self._result, failures=(Failure("dcgm", reason),))

    def _start_thread(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="dcgm", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        """Serve requests until the session is closed."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._request is not None or self._is_closing)
                request = self._request
            if request is None:
                if self._close_session():
                    return
                continue
            result = DcgmResult(failures=(Failure("dcgm", messages.READ_FAILED.text("en")),))
            try:
                result = self._reader.read(request.targets, request.fields, now=request.now)
            finally:
                with self._changed:
                    self._request, self._result = None, result
                    self._changed.notify_all()

    def _close_session(self) -> bool:
        """Whether the thread has nothing left to do."""
        try:
            self._reader.close()
        finally:
            with self._changed:
                self._is_closing, self._result = False, DcgmResult()
                if self._request is None:
                    self._thread = None
                self._changed.notify_all()
        return self._thread is None

    def _add(self, reading: GpuReading, result: DcgmResult, now: float) -> GpuReading:
        valid_seconds = VALID_INTERVALS * choose_watch_seconds(self._reader.hostengine, self._interval)
        added = {
            name: sample.value
            for name, sample in result.samples.get(reading.gpu.uuid, {}).items()
            if abs(now - sample.taken_at) <= valid_seconds
            and (reading.gpu.mig is None or ALL_SIGNALS[name].scope is Scope.INSTANCE)
        }
        return replace(reading, signals={**added, **reading.signals}) if added else reading


def list_targets(readings: Sequence[GpuReading]) -> tuple[ProfiledDevice, ...]:
    """The GPUs and MIG instances that NVML cannot profile.

    A GPU instance with several compute instances is left out: its values belong to none of them.
    """
    own = [each for each in readings if not each.lost and not each.supports_gpm]
    sizes = Counter(_instance(each) for each in own)
    return tuple(
        ProfiledDevice(each.gpu.uuid, each.gpu.device_uuid, each.gpu.mig.gpu_instance_id if each.gpu.mig else None)
        for each in own
        if sizes[_instance(each)] == 1
    )


def _instance(reading: GpuReading) -> tuple[str, int | None]:
    return reading.gpu.device_uuid, reading.gpu.mig.gpu_instance_id if reading.gpu.mig else None
