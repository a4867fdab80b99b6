"""Basic authentication against bcrypt hashes."""

import base64
import binascii
import hashlib
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping

BCRYPT_HASH = re.compile(r"\$2[abxy]\$(0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{31}")
MAX_BCRYPT_BYTES = 72  # bcrypt sees no more of a password; longer ones are cut, as htpasswd and Go do
REMEMBERED_FAILURES = 100


class BasicAuthentication:
    """Users and their bcrypt hashes.

    A hash costs tens of milliseconds on purpose, a scraper comes every few seconds with the same words: what was
    checked once is remembered, as a digest that is worthless outside this process. Hashes are computed one at a
    time, so that wrong passwords cannot take more than one core, and for unknown users too, so that the time
    does not tell who exists.
    """

    def __init__(self, hashes: Mapping[str, str]) -> None:
        self._hashes = {user: text.encode() for user, text in hashes.items()}
        self._nobody = _impossible_hash(max(self._hashes.values(), key=_cost))
        self._salt = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._right: set[bytes] = set()
        self._wrong: dict[bytes, None] = {}

    def allow(self, authorization: str) -> bool:
        """Whether an `Authorization` header names a user with the right password."""
        credentials = parse_basic(authorization)
        return credentials is not None and self.check(*credentials)

    def check(self, user: str, password: bytes) -> bool:
        digest = self._digest(user, password)
        if digest in self._right:  # before the lock: those who are known do not queue behind those who guess
            return True
        with self._lock:
            if digest in self._wrong:
                return False
            return self._remember(digest, right=self._compute(user, password))

    def _digest(self, user: str, password: bytes) -> bytes:
        name = hashlib.sha256(self._salt + user.encode("utf-8", "replace")).digest()
        return hashlib.sha256(self._salt + name + password).digest()

    def _compute(self, user: str, password: bytes) -> bool:
        import bcrypt

        matches = bcrypt.checkpw(password[:MAX_BCRYPT_BYTES], self._hashes.get(user, self._nobody))
        return matches and user in self._hashes

    def _remember(self, digest: bytes, *, right: bool) -> bool:
        if right:
            if len(self._right) > len(self._hashes):  # bytes beyond the 72nd make different words with one hash
                self._right.clear()
            self._right.add(digest)
        else:
            if len(self._wrong) >= REMEMBERED_FAILURES:
                del self._wrong[next(iter(self._wrong))]
            self._wrong[digest] = None
        return right


def parse_basic(authorization: str) -> tuple[str, bytes] | None:
    """`Basic dXNlcjpwYXNz` -> ("user", b"pass")."""
    scheme, _, encoded = authorization.strip().partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return (user.decode("utf-8", "replace"), password) if colon else None


def _cost(text: bytes) -> int:
    return int(text.split(b"$")[2])


def _impossible_hash(like: bytes) -> bytes:
    """A hash of the same cost that no password is known for: the salt is kept, the digest is made up."""
    return like[:-31] + b"." * 31


class TokenBucket:
    """Lets `burst` requests through at once, and one more every `interval_seconds`."""

    def __init__(self, interval_seconds: float, burst: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = interval_seconds
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._filled_at = clock()
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Whether one more request may pass now."""
        with self._lock:
            now = self._clock()
            self._tokens = min(self._burst, self._tokens + (now - self._filled_at) / self._interval)
            self._filled_at = now
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True
