"""Who sends a request: sessions of browsers, the header of a reverse proxy, and the rules that give people a role and
namespaces.

A session is a random value in a cookie that stands for the token that somebody signed in with. The token is checked
again with every request, as if it had been sent: when it is removed, expires, or its role changes, so does the session.
Sessions are kept in memory: they end with the program.
"""

import hashlib
import hmac
import ipaddress
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple

from starlette.datastructures import Headers

from gpusteward.analyzer.api.http.roles import Role
from gpusteward.analyzer.settings.auth import AuthRule, Network, ProxySettings, parse_networks
from gpusteward.core.namespaces import NamespacePattern, VisibleNamespaces, see_namespaces
from gpusteward.http_server.limits import LONGEST_CREDENTIALS
from gpusteward.logs import Log

COOKIE = "gpusteward_session"
CSRF_HEADER = "x-gpusteward-csrf"
MOST_SESSIONS = 1000
"""Beyond that one of those ends who have the most: the one that was not used for the longest time."""
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Session:
    """A browser that is signed in."""

    bearer: str = field(repr=False)
    csrf: str = field(repr=False)  # what writes must repeat in a header: pages of other sites cannot read it
    expires_at: float  # unix seconds
    owner: str = field(default="", repr=False)


class NewSession(NamedTuple):
    """A session, and the value of its cookie, which is kept nowhere."""

    value: str
    session: Session


class Sessions:
    """Used on the event loop only."""

    def __init__(self, *, clock: Callable[[], float] = time.time, most: int = MOST_SESSIONS) -> None:
        self._clock = clock
        self._most = most
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()  # the last used one comes last

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, bearer: str, *, seconds: float, owner: str = "") -> NewSession:
        """`owner`: whoever signs in often ends sessions of their own only."""
        value = secrets.token_urlsafe(_KEY_BYTES)
        session = Session(bearer, secrets.token_urlsafe(_KEY_BYTES), self._clock() + seconds, owner)
        self._remove_expired()
        while len(self._sessions) >= self._most:
            counts = Counter(each.owner for each in self._sessions.values())
            most = max(counts.values())
            del self._sessions[next(key for key, each in self._sessions.items() if counts[each.owner] == most)]
        self._sessions[_digest(value)] = session
        return NewSession(value, session)

    def find(self, value: str) -> Session | None:
        """None: there is no such session, or it has expired."""
        key = _digest(value)
        session = self._sessions.get(key)
        if session is None:
            return None
        if session.expires_at <= self._clock():
            del self._sessions[key]
            return None
        self._sessions.move_to_end(key)
        return session

    def close(self, value: str) -> None:
        self._sessions.pop(_digest(value), None)

    def _remove_expired(self) -> None:
        now = self._clock()
        for key in [key for key, each in self._sessions.items() if each.expires_at <= now]:
            del self._sessions[key]


def _digest(value: str) -> bytes:
    """Found by digest: the time of a search says nothing about the values."""
    return hashlib.blake2b(value.encode("utf-8", "surrogateescape"), digest_size=32).digest()


def read_cookie(headers: Headers) -> str:
    """The value of the session's cookie; empty: there is none."""
    for header in headers.getlist("cookie"):
        for part in header.split(";"):
            name, _, value = part.strip().partition("=")
            if name == COOKIE:
                return value
    return ""


def write_cookie(value: str, *, seconds: float, is_secure: bool) -> str:
    """The header `Set-Cookie`. Without a path: browsers send the cookie below the directory of the address that set it,
    /api/v1 with whatever prefix a proxy adds."""
    secure = "; Secure" if is_secure else ""
    return f"{COOKIE}={value}; Max-Age={seconds:.0f}; HttpOnly; SameSite=Strict{secure}"


def is_csrf_token(session_token: str, headers: Headers) -> bool:
    """Whether a request repeats the token of its session."""
    sent = headers.get(CSRF_HEADER, "")
    return hmac.compare_digest(sent.encode("utf-8", "surrogateescape"), session_token.encode())


FAILURES_PER_MINUTE = 10
MOST_PEERS = 1000


class SignInLimit:
    """Counts failed sign-ins by address. Used on the event loop only."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, most: int = FAILURES_PER_MINUTE) -> None:
        self._clock = clock
        self._most = most
        self._failures: OrderedDict[str, list[float]] = OrderedDict()

    def is_exceeded(self, peer: str) -> bool:
        """Whether an address failed too often within the last minute."""
        since = self._clock() - 60
        return sum(at > since for at in self._failures.get(peer, ())) >= self._most

    def add_failure(self, peer: str) -> None:
        self._failures[peer] = [*self._failures.pop(peer, [])[1 - self._most :], self._clock()]
        while len(self._failures) > MOST_PEERS:
            self._failures.popitem(last=False)


log = Log(__name__)

LOG_SECONDS = 60.0
LONGEST_NAME = 256
MOST_GROUPS = 1000
Method = Literal["anonymous", "token", "proxy", "oidc", "service-account", "web-config"]


class InvalidIdentityError(Exception):
    """A user or group that cannot be used. The text contains nothing that was sent."""


class Person(NamedTuple):
    """Somebody who signed in elsewhere."""

    user: str
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Identity:
    """Who sends a request, and what it may do."""

    method: Method  # how it was identified
    role: Role
    user: str = ""  # empty: a token or an anonymous request
    groups: tuple[str, ...] = ()
    visible: VisibleNamespaces | None = None  # None: everything
    credential: str = field(default="", repr=False, compare=False)  # tells tokens of the settings apart; no secret
    session: Session | None = field(default=None, repr=False)  # of a browser; None: its credentials were sent

    def __str__(self) -> str:
        """As the log names it."""
        return self.user or f"{self.method} {self.role}"


def is_proxy(peer: str, settings: ProxySettings) -> bool:
    """Whether the address of the TCP peer is that of a configured proxy."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return any(address in network for network in _read_networks(tuple(settings.addresses)))


@lru_cache(maxsize=8)
def _read_networks(addresses: tuple[str, ...]) -> Sequence[Network]:
    return parse_networks(addresses)


def has_identity_header(headers: Headers, settings: ProxySettings) -> bool:
    return settings.user_header in headers or bool(settings.groups_header and settings.groups_header in headers)


def read_proxy_headers(headers: Headers, settings: ProxySettings) -> Person | None:
    """None without a user: the proxy let somebody through who is not signed in. Raises InvalidIdentityError."""
    user, groups = _read_once(headers, settings.user_header), ""
    if settings.groups_header:
        groups = _read_once(headers, settings.groups_header)
    if not user:
        return None
    split = (part.strip() for part in groups.split(settings.groups_separator))
    return check_person(user, [part for part in split if part])


def _read_once(headers: Headers, name: str) -> str:
    """Of two headers of the same name, one may be the client's own."""
    values = headers.getlist(name)
    if len(values) > 1:
        raise InvalidIdentityError(f"the header {name} occurs {len(values)} times")
    if values and len(values[0]) > LONGEST_CREDENTIALS:
        raise InvalidIdentityError(f"the header {name} is too long")
    try:
        # Starlette decodes latin-1; proxies send UTF-8.
        return values[0].encode("latin-1").decode("utf-8").strip(" \t") if values else ""
    except UnicodeDecodeError:
        raise InvalidIdentityError(f"the header {name} is not UTF-8") from None


def check_person(user: str, groups: Sequence[str]) -> Person:
    """Raises InvalidIdentityError: a name that is cut or cleaned could become that of somebody else."""
    if len(groups) > MOST_GROUPS:
        raise InvalidIdentityError(f"more than {MOST_GROUPS} groups")
    for name in (user, *groups):
        if not name or len(name) > LONGEST_NAME or not name.isprintable():
            raise InvalidIdentityError(f"a name is empty, longer than {LONGEST_NAME}, or has control characters")
    return Person(user, tuple(groups))


def apply_rules(person: Person, rules: Sequence[AuthRule], *, method: Method) -> Identity | None:
    """All rules that match count: the highest role, and the namespaces of all of them. None: no rule matches."""
    matching = [rule for rule in rules if rule.matches(person.user, person.groups)]
    if not matching:
        return None
    role = max((Role(rule.role) for rule in matching), key=tuple(Role).index)
    patterns = frozenset(
        NamespacePattern(namespace, cluster)
        for rule in matching
        for namespace in rule.namespaces
        for cluster in rule.clusters
    )
    visible = see_namespaces(patterns) if role is Role.VIEWER else None
    return Identity(method, role, person.user, person.groups, visible)


class Refusals:
    """Counts refused requests by reason. The first of a minute is logged: whoever sends many cannot fill the log."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._counts = Counter[str]()
        self._logged_at: dict[str, float] = {}
        self._clock = clock

    @property
    def counts(self) -> Mapping[str, int]:
        return self._counts

    def add(self, reason: str, *, peer: str, detail: str = "") -> None:
        """`reason`: one of few words."""
        self._counts[reason] += 1
        now = self._clock()
        if now - self._logged_at.get(reason, float("-inf")) >= LOG_SECONDS:
            self._logged_at[reason] = now
            log.warning("request_refused", reason=reason, peer=peer, detail=detail, count=self._counts[reason])
