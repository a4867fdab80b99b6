"""Reads the values of all targets: opens a session when needed, and again after the hostengine was lost."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpusteward.agent.dcgm.library import CONNECTION_NOT_VALID, SONAMES, DcgmError, Library
from gpusteward.agent.dcgm.session import SIGNALS, ProfiledDevice, Samples, Session
from gpusteward.agent.settings.values import Hostengine
from gpusteward.core.dcgm import FIELDS
from gpusteward.core.errors import SourceError
from gpusteward.core.snapshots import Failure
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
        self._session: Session | None = None
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

    def _open(self) -> Session:
        """Raises SourceError."""
        if self._session is None:
            self.hostengine, self._session = open_session(
                self.hostengine, interval_seconds=self._interval, sonames=self._sonames
            )
        return self._session


def open_session(
    hostengine: Hostengine, *, interval_seconds: float, sonames: Sequence[str] = SONAMES
) -> tuple[Hostengine, Session]:
    """A session, and the hostengine it is with. Raises SourceError.

    `auto` prefers a hostengine that runs here: two of them on one machine would compete for the profiling hardware.
    """
    library = Library(sonames)
    if hostengine.kind == "auto":
        try:
            session = Session(library, LOCAL, interval_seconds=interval_seconds)
            hostengine = LOCAL
        except DcgmError as error:
            if error.code != CONNECTION_NOT_VALID:
                raise
            session = Session(library, EMBEDDED, interval_seconds=interval_seconds)
            hostengine = EMBEDDED
    else:
        session = Session(library, hostengine, interval_seconds=interval_seconds)
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
        fields = {uuid: _name(session.list_supported(gpu_id)) for uuid, gpu_id in session.gpu_ids.items()}
        return HostengineReport(found, session.version, fields)
    finally:
        session.close()


def _name(ids: frozenset[int]) -> tuple[str, ...]:
    return tuple(each.name for each in FIELDS if each.id in ids & SIGNALS.keys())
