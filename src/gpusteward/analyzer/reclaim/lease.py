"""The Lease of Kubernetes that decides which analyzer acts; renewed before each action.

The ledger's lease decides who records; it is a row of a database that several clusters may share, or a file that only
one process has. This one is in the cluster that is changed. A holder that stops renewing loses it after
`DURATION_SECONDS`, measured by the one that waits: clocks of different machines are never compared.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime

from gpusteward.analyzer.reclaim.cluster import Cluster
from gpusteward.analyzer.reclaim.kinds.objects import Json, KubeObject
from gpusteward.core.errors import SourceError
from gpusteward.kubernetes.writes import ConflictError, ReplacedError
from gpusteward.logs import Log

log = Log(__name__)

DURATION_SECONDS = 60
"""Longer than an action takes between its renewal and its write, whose request may take 10 s."""


class ActorLease:
    """Belongs to the thread that acts."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        namespace: str,
        name: str,
        holder: str,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.holder = holder
        self.current = ""  # who held it when it was read last
        self.error: SourceError | None = None  # why it could not be renewed last time
        self._cluster, self._namespace, self._name = cluster, namespace, name
        self._clock, self._wall_clock = clock, wall_clock
        self._seen: tuple[str, str] = ("", "")  # holder and renewal of somebody else
        self._seen_at = 0.0
        self._valid_until = 0.0

    @property
    def is_valid(self) -> bool:
        """Whether nobody else can hold it at this moment."""
        return self._clock() < self._valid_until

    def renew(self) -> bool:
        """Take it if it is free, or renew it; whether this analyzer may act now. Never raises."""
        started = self._clock()
        try:
            is_held = self._try()
            self.error = None
        except SourceError as error:
            if str(error) != str(self.error or ""):
                log.warning("lease_not_renewed", lease=self._name, reason=error)
            self.error, is_held = error, False
        self._valid_until = started + DURATION_SECONDS * 0.75 if is_held else 0.0
        return is_held

    def _try(self) -> bool:
        found = self._cluster.read_lease(self._namespace, self._name)
        if found is None:
            self._cluster.create_lease(self._namespace, self._name, self._make_spec(0))
            self.current = self.holder
            return True
        spec = found.spec
        self.current = str(spec.get("holderIdentity") or "")
        if self.current not in (self.holder, "") and not self._has_expired(found):
            return False
        transitions = int(spec.get("leaseTransitions") or 0) + (self.current != self.holder)
        fields = {f"/spec/{name}": value for name, value in self._make_spec(transitions).items()}
        if self.current == self.holder:
            del fields["/spec/acquireTime"]
        try:
            self._cluster.patch(found, fields)
        except (ConflictError, ReplacedError):
            return False  # somebody else was faster
        self.current = self.holder
        return True

    def _has_expired(self, found: KubeObject) -> bool:
        """Whether its holder has not renewed it for its whole duration, as seen from here."""
        seen = (str(found.spec.get("holderIdentity")), str(found.spec.get("renewTime")))
        now = self._clock()
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        duration = float(found.spec.get("leaseDurationSeconds") or DURATION_SECONDS)
        return now - self._seen_at >= duration

    def release(self) -> None:
        """So that another replica need not wait. Never raises."""
        if not self.is_valid:
            return
        self._valid_until = 0.0
        try:
            found = self._cluster.read_lease(self._namespace, self._name)
            if found is not None and found.spec.get("holderIdentity") == self.holder:
                self._cluster.patch(found, {"/spec/holderIdentity": None})
        except SourceError as error:
            log.debug("lease_not_released", lease=self._name, reason=error)

    def _make_spec(self, transitions: int) -> Json:
        now = datetime.fromtimestamp(self._wall_clock(), UTC).isoformat(timespec="microseconds")
        now = now.replace("+00:00", "Z")
        return {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": DURATION_SECONDS,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }
