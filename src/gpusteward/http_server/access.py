"""Access control of the HTTP server: basic authentication against bcrypt hashes, and a rate limit."""

import base64
import binascii
import os
import re
import threading
import time
from collections.abc import Callable, Mapping

BCRYPT_HASH = re.compile(r"\$2[abxy]\$(0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{31}")
MAX_BCRYPT_BYTES = 72  # bcrypt uses no more of a password; longer ones are cut, as htpasswd and Go do
REMEMBERED_FAILURES = 100
Verify = Callable[[bytes, bytes], bool]  # password, hash


def verify_bcrypt(password: bytes, hashed: bytes) -> bool:
    import bcrypt

    return bcrypt.checkpw(password[:MAX_BCRYPT_BYTES], hashed)


class BasicAuthentication:
    """Users and their bcrypt hashes.

    A hash takes tens of milliseconds by design, and scrapers send the same credentials every few seconds: results are
    cached under a digest that is useless outside this process. Hashes are computed one at a time, so that wrong
    passwords cannot use more than one core, and for unknown users too, so that timing does not reveal user names.
    """

    def __init__(self, hashes: Mapping[str, str], *, verify: Verify = verify_bcrypt) -> None:
        self._hashes = {user: text.encode() for user, text in hashes.items()}
        self._verify = verify
        slowest = max(self._hashes.values(), key=lambda text: int(text.split(b"$")[2]))  # by its cost
        self._unknown_user_hash = slowest[:-31] + b"." * 31  # as slow, and of no password: a made-up digest
        self._salt = os.urandom(32)
        self._lock = threading.Lock()
        self._right: set[bytes] = set()
        self._wrong: dict[bytes, None] = {}

    def allow(self, authorization: str) -> bool:
        """Whether an `Authorization` header names a user with the right password."""
        credentials = parse_basic(authorization)
        return credentials is not None and self.check(*credentials)

    def recall(self, authorization: str) -> bool:
        """Whether the credentials of the header are known to be right, without computing a hash."""
        credentials = parse_basic(authorization)
        return credentials is not None and self._digest(*credentials) in self._right

    def check(self, user: str, password: bytes) -> bool:
        digest = self._digest(user, password)
        if digest in self._right:  # before the lock: known clients do not wait behind password guesses
            return True
        with self._lock:
            if digest in self._wrong:
                return False
            # For an unknown user too: the time that it takes says nothing.
            is_right = self._verify(password, self._hashes.get(user, self._unknown_user_hash)) and user in self._hashes
            if not is_right:
                if len(self._wrong) >= REMEMBERED_FAILURES:
                    del self._wrong[next(iter(self._wrong))]
                self._wrong[digest] = None
                return False
            if len(self._right) > len(self._hashes):  # passwords that differ after byte 72 have the same hash
                self._right.clear()
            self._right.add(digest)
            return True

    def _digest(self, user: str, password: bytes) -> bytes:
        import hashlib  # 0.7 MB that the agent needs only with this feature

        name = hashlib.sha256(self._salt + user.encode("utf-8", "replace")).digest()
        return hashlib.sha256(self._salt + name + password).digest()


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


class TokenBucket:
    """Allows `burst` requests at once, and one more every `interval_seconds`."""

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
