"""The claims of this node over several responses of the kubelet.

A restarted kubelet responds without error before it knows its pods again: for about a second, or until the API server
is available. A response that names none of the running pods is not accepted, and running pods that a response lacks
keep the claims they had, for a limited time. Static pods prove nothing: the kubelet reads them from files. While the
running pods are unknown, any other pod proves that the kubelet knows its pods.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpusteward.agent.kubernetes.claims import Claim, Listing
from gpusteward.agent.kubernetes.pod_records import Pod

CLAIMS_VALID_SECONDS = 60.0
"""How long the last response of the kubelet stays valid while it does not respond; a kubelet restart takes less."""

CLAIMS_REFRESH_SECONDS = 30.0
"""How often the kubelet is queried while no pod of the node changes: devices are assigned only when a pod starts."""

UNLISTED_SECONDS = 300.0
"""How long running pods keep their claims while the kubelet responds without them. With the API server away, 67 s were
seen. Meanwhile the kubelet assigns no device to other pods, because it does not know them either. Where no API server
is configured, the kubelet's word counts after that time: it does list no pod."""

PodName = tuple[str, str]  # namespace, name


@dataclass(frozen=True, slots=True)
class _Entry:
    """The claims of a pod in the last response that named it."""

    uid: str  # empty: not known then
    claims: tuple[Claim, ...]


class ClaimCache:
    """The claims that are valid now."""

    def __init__(self, node: str, *, has_pod_watch: bool) -> None:
        """`has_pod_watch`: whether the pods of the node will be known, sooner or later."""
        self.claims: tuple[Claim, ...] = ()
        self.kept: tuple[Claim, ...] = ()  # those of `claims` that the last response lacks
        self.unlisted: frozenset[PodName] = frozenset()  # pods of earlier responses that the last one lacks
        self.is_accepted = True  # the last response
        self._node = node
        self._has_pod_watch = has_pod_watch
        self._entries: dict[PodName, _Entry] = {}
        self._missing_since: dict[PodName, float] = {}
        self._accepted_at = -UNLISTED_SECONDS
        self._unproven_since: float | None = None  # no response since then proves that the kubelet knows its pods
        self._pods: Mapping[str, Pod] | None = None  # known at the last query

    def is_current(self, pods: Mapping[str, Pod] | None, now: float) -> bool:
        """Whether the kubelet need not be queried: its last response was complete and no pod has changed since."""
        is_recent = 0 <= now - self._accepted_at < CLAIMS_REFRESH_SECONDS
        return bool(pods) and pods is self._pods and is_recent and self.is_accepted and not self.unlisted

    def is_known(self, now: float) -> bool:
        """Whether a response was accepted recently enough."""
        return now - self._accepted_at <= (CLAIMS_VALID_SECONDS if self.is_accepted else UNLISTED_SECONDS)

    def forget_if_outdated(self, now: float) -> None:
        """To be called when the kubelet does not respond."""
        if not self.is_known(now):
            self.claims = self.kept = ()
            self._entries.clear()

    def update(self, listing: Listing, pods: Mapping[str, Pod] | None, *, now: float) -> None:
        """Take a response of the kubelet. `pods`: None if the pods of the node are unknown."""
        expected = self._expect_pods(pods)
        self._track_missing(expected.keys() - listing.pods, now)
        self.is_accepted = self._accept(listing, pods, now)
        if self.is_accepted:
            self._accepted_at = now
        kept = self._keep_entries(expected)
        taken = {(claim.resource, claim.device_id) for claim in listing.claims}
        self.kept = tuple(
            claim for entry in kept.values() for claim in entry.claims if (claim.resource, claim.device_id) not in taken
        )
        self.claims = (*listing.claims, *self.kept)
        self._entries = kept | _make_entries(listing, {(pod.namespace, pod.name): pod.uid for pod in _values(pods)})
        self._pods = pods

    def _expect_pods(self, pods: Mapping[str, Pod] | None) -> dict[PodName, str]:
        """Pods that were listed before and have not ended since, as far as that is known, with their uid."""
        if pods is None:
            return {name: entry.uid for name, entry in self._entries.items() if not self._is_static(name)}
        return {
            (pod.namespace, pod.name): pod.uid
            for pod in pods.values()
            if (pod.namespace, pod.name) in self._entries and not pod.static_uid and not pod.is_finished
        }

    def _track_missing(self, missing: Iterable[PodName], now: float) -> None:
        self._missing_since = {name: min(self._missing_since.get(name, now), now) for name in missing}
        self.unlisted = frozenset(
            name for name, since in self._missing_since.items() if now - since <= UNLISTED_SECONDS
        )

    def _accept(self, listing: Listing, pods: Mapping[str, Pod] | None, now: float) -> bool:
        """Whether the kubelet knows its pods: proven by the pods it lists, or believed after the time limit."""
        names = {name for name in listing.pods if not self._is_static(name)}
        if pods is None:
            self.unlisted = frozenset() if names else self.unlisted  # a pod less has ended
            is_proven, is_credible = bool(names), not self._has_pod_watch
        else:
            running = _find_running(pods)
            is_proven, is_credible = not running or bool(running & listing.pods), bool(names)
        if is_proven:
            self._unproven_since = None
            return True
        self._unproven_since = now if self._unproven_since is None else min(self._unproven_since, now)
        return is_credible and now - self._unproven_since > UNLISTED_SECONDS

    def _keep_entries(self, expected: Mapping[PodName, str]) -> dict[PodName, _Entry]:
        """The entries of unlisted pods, unless a new pod of the same name has replaced the pod."""
        return {
            name: entry
            for name, entry in self._entries.items()
            if name in self.unlisted and entry.uid in ("", expected[name])
        }

    def _is_static(self, name: PodName) -> bool:
        """The kubelet names a static pod after its node."""
        return name[1].endswith(f"-{self._node}")


def _find_running(pods: Mapping[str, Pod]) -> set[PodName]:
    """The pods that the kubelet lists as soon as it has read them from the API server."""
    return {(pod.namespace, pod.name) for pod in pods.values() if pod.phase == "Running" and not pod.static_uid}


def _values(pods: Mapping[str, Pod] | None) -> Iterable[Pod]:
    return pods.values() if pods else ()


def _make_entries(listing: Listing, uids: Mapping[PodName, str]) -> dict[PodName, _Entry]:
    claims: dict[PodName, list[Claim]] = {}
    for claim in listing.claims:
        claims.setdefault((claim.namespace, claim.pod), []).append(claim)
    for name in listing.pods:
        claims.setdefault(name, [])
    return {name: _Entry(uids.get(name, ""), tuple(own)) for name, own in claims.items()}
