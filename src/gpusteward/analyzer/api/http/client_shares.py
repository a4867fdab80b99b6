"""How many requests one client may have under way, so that nobody takes them from the others.

A client is an address and who it has proved to be: people behind one proxy, one ingress or the API server have one
address, and each their own share. Who has proved to be somebody gets at most half of all, from however many addresses.
`/metrics` and event streams are counted by themselves; probes are not counted.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from starlette.types import Scope

from gpusteward.analyzer.api.http.identities import Identity
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.messages.errors import api_errors


class Share(NamedTuple):
    """How many may be under way."""

    of_one_client: int
    of_all: int


EVENTS_PATH = "/api/v1/events"
OTHERS = "others"
SHARES: Mapping[str, Share] = {
    "/metrics": Share(8, 64),
    EVENTS_PATH: Share(16, 128),  # each window of a browser has one
    OTHERS: Share(32, 256),  # a browser sends at most 6 at once
}
_KEY = "gpusteward.share"


class ClientShares:
    """Counts requests until their responses are sent. Used on the event loop only."""

    def __init__(self, shares: Mapping[str, Share] = SHARES) -> None:
        self._shares = shares
        self._of_clients = Counter[tuple[str, str, str]]()  # kind, address (`*`: all of them), identity
        self._of_kinds = Counter[str]()

    def take(self, scope: Scope, identity: Identity) -> None:
        """Raises a 503 problem. `release` gives it back."""
        if _KEY in scope:
            return
        kind = scope["path"] if scope["path"] in self._shares else OTHERS
        address = scope["client"][0] if scope.get("client") else ""
        name = f"{identity} {identity.credential}"
        key, everywhere = (kind, address, name), (kind, "*", name)
        share = self._shares[kind]
        is_known = bool(identity.user or identity.credential)
        if (
            self._of_clients[key] >= share.of_one_client
            or self._of_kinds[kind] >= share.of_all
            or (is_known and self._of_clients[everywhere] >= share.of_all // 2)
        ):
            message = api_errors.TOO_MANY_LISTENERS if kind == EVENTS_PATH else api_errors.TOO_MANY_OF_CLIENT
            problem = "too-many-listeners" if kind == EVENTS_PATH else "busy"
            raise ProblemError(503, problem, message, headers={"Retry-After": "30" if kind == EVENTS_PATH else "2"})
        scope[_KEY] = key, everywhere
        self._of_clients.update((key, everywhere))
        self._of_kinds[kind] += 1

    def release(self, scope: Scope) -> None:
        """Nothing happens where none was taken."""
        keys = scope.pop(_KEY, ())
        if keys:
            self._of_kinds[keys[0][0]] -= 1
        for key in keys:
            self._of_clients[key] -= 1
            if not self._of_clients[key]:
                del self._of_clients[key]
