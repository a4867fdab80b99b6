"""Sessions of browsers: a random value in a cookie stands for the token that somebody signed in with.

The token is checked again with every request, as if it had been sent: when it is removed, expires, or its role changes,
so does the session. Sessions are kept in memory: they end with the program.
"""

import hashlib
import hmac
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from starlette.datastructures import Headers

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
