"""Signed tokens (JWT) as bearer tokens, of whatever issuer: their parts, the keys of the issuer, and the checks of
signature, issuer, audience and times.

Keys are read in a thread, kept for an hour, limited in size and number. A token with an unknown key id makes them be
read again, at most twice a minute: whoever sends invented key ids cannot make the analyzer flood the provider. While
the provider cannot be reached, the last keys stay in use for a day.
"""

import asyncio
import base64
import binascii
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gpusteward import __version__
from gpusteward.analyzer.api.http.concurrency_limits import run_in_thread
from gpusteward.analyzer.settings.auth import OidcSettings, is_secure_url
from gpusteward.core.errors import GpustewardError
from gpusteward.http.client import HttpClient, Request
from gpusteward.http.connections import load_tls_context
from gpusteward.http.errors import HttpError
from gpusteward.http.urls import find_proxy, parse_url
from gpusteward.http_server.limits import LONGEST_CREDENTIALS
from gpusteward.logs import Log

log = Log(__name__)

KEEP_SECONDS = 3600.0
LONGEST_KEEP_SECONDS = 86_400.0
RETRY_SECONDS = 30.0
TIMEOUT_SECONDS = 5.0
MOST_KEYS = 64
MOST_BYTES = 256 * 1024
_CURVE_BITS, _RSA_BITS = (256, 384, 521), range(2048, 8193)
"""Shorter keys can be broken, longer ones take long."""
_CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
_RSA = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})

Json = Mapping[str, Any]


class KeysUnavailableError(GpustewardError):
    """The keys of the provider cannot be read."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key, and the signatures that it may verify: its type decides, never the token."""

    id: str
    algorithms: frozenset[str]
    key: Any


class SigningKeys:
    """The keys of one issuer. Used on the event loop only."""

    def __init__(
        self,
        read: Callable[[], Sequence[SigningKey]],
        *,
        issuer: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`read`: called in a thread; raises an exception if the keys cannot be read. `issuer`: for the log."""
        self._issuer = issuer
        self._read = read
        self._clock = clock
        self._keys: Sequence[SigningKey] | None = None  # None: never read
        self._read_at = self._tried_at = float("-inf")
        self._reading: asyncio.Future[Sequence[SigningKey]] | None = None

    async def find(self, key_id: str | None, algorithm: str) -> SigningKey | None:
        """None: there is no such key. Raises KeysUnavailableError."""
        if self._age > LONGEST_KEEP_SECONDS:
            self._keys = None
        if self._keys is None or self._choose(key_id, algorithm) is None:
            if (reading := self._start()) is not None:
                with suppress(Exception):  # logged once, by `_finish`
                    async with asyncio.timeout(2 * TIMEOUT_SECONDS + 1):
                        await asyncio.shield(reading)
        elif self._age > KEEP_SECONDS:
            self._start()  # without waiting: the keys at hand are still good
        if self._keys is None:
            raise KeysUnavailableError(f"the keys of {self._issuer} cannot be read")
        return self._choose(key_id, algorithm)

    @property
    def _age(self) -> float:
        return self._clock() - self._read_at

    def _choose(self, key_id: str | None, algorithm: str) -> SigningKey | None:
        """A token without a key id is verified only where there is no choice."""
        fitting = [key for key in self._keys or () if algorithm in key.algorithms and key_id in (None, key.id)]
        return fitting[0] if len(fitting) == 1 or (fitting and key_id is not None) else None

    def _start(self) -> asyncio.Future[Sequence[SigningKey]] | None:
        """The read that is under way, or a new one; None: the last one was a moment ago."""
        if self._reading is None and self._clock() - self._tried_at >= RETRY_SECONDS:
            self._tried_at = self._clock()
            self._reading = run_in_thread(self._read)
            self._reading.add_done_callback(self._finish)
        return self._reading

    def _finish(self, reading: asyncio.Future[Sequence[SigningKey]]) -> None:
        self._reading = None
        if reading.cancelled():
            return
        if error := reading.exception():
            log.warning("signing_keys_not_read", issuer=self._issuer, reason=error)
            return
        self._keys, self._read_at = reading.result(), self._clock()
        log.info("signing_keys_read", issuer=self._issuer, keys=len(self._keys))


def read_keys(settings: OidcSettings) -> list[SigningKey]:
    """From the file, the URL, or where the discovery document says. Blocks. Raises KeysUnavailableError."""
    try:
        if settings.jwks_url.startswith("file://"):
            with Path(settings.jwks_url.removeprefix("file://")).open("rb") as file:
                return parse_keys(file.read(MOST_BYTES + 1))
        return parse_keys(_fetch(settings.jwks_url or _discover(settings), settings))
    except (OSError, HttpError, ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise KeysUnavailableError(f"{type(error).__name__}: {error}") from error


def _discover(settings: OidcSettings) -> str:
    document = msgspec.json.decode(_fetch(f"{settings.issuer.rstrip('/')}/.well-known/openid-configuration", settings))
    if not isinstance(document, dict) or document.get("issuer") != settings.issuer:
        raise KeysUnavailableError("the discovery document is of another issuer than auth.oidc.issuer")
    url = document.get("jwks_uri")
    if not isinstance(url, str) or not is_secure_url(url):
        raise KeysUnavailableError("the discovery document has no https URL as its jwks_uri")
    return url


def _fetch(url: str, settings: OidcSettings) -> bytes:
    """Redirects are not followed."""
    parsed = parse_url(url, allows_query=True)
    tls = load_tls_context(settings.ca_file) if parsed.is_tls else None
    client = HttpClient(replace(parsed, path=""), tls=tls, proxy=find_proxy(parsed))
    headers = {"Accept": "application/json", "User-Agent": f"gpusteward/{__version__}", "Connection": "close"}
    request = Request("GET", parsed.target, None, headers)
    with client.send(request, timeout_seconds=TIMEOUT_SECONDS, limit_bytes=MOST_BYTES) as response:
        if response.status != 200:
            raise KeysUnavailableError(f"{parsed.address} answered HTTP {response.status}")
        return response.read()


def parse_keys(text: bytes) -> list[SigningKey]:
    """The usable keys of a JWKS; others are left out. Raises KeysUnavailableError without any."""
    document = msgspec.json.decode(text) if len(text) <= MOST_BYTES else None
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise KeysUnavailableError("this is not a JWKS: an object with a list `keys`")
    keys = [key for each in listed[:MOST_KEYS] if isinstance(each, dict) and (key := _parse_key(each))]
    if not keys:
        raise KeysUnavailableError("the JWKS has no public key that can verify signatures")
    return keys


def _parse_key(jwk: Json) -> SigningKey | None:
    from jwt import PyJWK, PyJWTError  # 8 MB and 0.3 s, which only the tokens of a provider need

    algorithms, key_id = _find_algorithms(jwk), jwk.get("kid", "")
    if not algorithms or not isinstance(key_id, str) or jwk.get("use", "sig") != "sig":
        return None
    try:
        public = {name: value for name, value in jwk.items() if name in ("kty", "crv", "n", "e", "x", "y")}
        key = PyJWK(public).key
    except (PyJWTError, ValueError, TypeError):
        return None
    bits = getattr(key, "key_size", 256)  # a key of EdDSA has no size
    is_usable = bits in _CURVE_BITS or bits in _RSA_BITS
    return SigningKey(key_id, algorithms, key) if is_usable else None


def _find_algorithms(jwk: Json) -> frozenset[str]:
    """By the type of the key, and by its own `alg`. A shared secret (`oct`) verifies nothing."""
    fitting = {
        "RSA": _RSA,
        "EC": frozenset({_CURVES[jwk["crv"]]}) if jwk.get("crv") in _CURVES else frozenset(),
        "OKP": frozenset({"EdDSA"}) if jwk.get("crv") == "Ed25519" else frozenset(),
    }.get(str(jwk.get("kty")), frozenset())
    return fitting & {jwk["alg"]} if isinstance(jwk.get("alg"), str) else fitting


_TYPES = ("", "jwt", "at+jwt")
"""Of a token for an application. A logout token of the same provider is of another type."""

Claims = Mapping[str, Any]


class InvalidTokenError(Exception):
    """A token that is not accepted; the text says why, for the log, and contains nothing of the token."""


class TokenKey(NamedTuple):
    """The key that verifies a token, with the algorithm of its signature."""

    key: SigningKey
    algorithm: str


def looks_like_token(bearer: str) -> bool:
    """Whether it has the three parts of a JWT: a bearer token of the settings that has them is found first."""
    return bearer.count(".") == 2


def read_issuer(token: str) -> str:
    """Not verified: only to choose who verifies it. Raises InvalidTokenError."""
    _check_length(token)
    return str(_decode_part(token.split(".")[1]).get("iss", ""))


async def find_key(token: str, keys: SigningKeys, *, algorithms: Collection[str]) -> TokenKey:
    """Raises InvalidTokenError, and KeysUnavailableError while the keys cannot be read."""
    _check_length(token)
    header = _read_header(token)
    algorithm, key_id = header.get("alg"), header.get("kid")
    if algorithm not in algorithms:
        raise InvalidTokenError("its signature is of a kind that is not accepted")
    if not isinstance(key_id, str | None):
        raise InvalidTokenError("its key id is not text")
    key = await keys.find(key_id, str(algorithm))
    if key is None:
        raise InvalidTokenError("it is signed with a key that the issuer does not publish")
    return TokenKey(key, str(algorithm))


def decode_claims(
    token: str, found: TokenKey, *, issuer: str, audience: Sequence[str], leeway_seconds: float = 30.0
) -> Claims:
    """The claims of a token whose signature, issuer, audience and times are right. Raises InvalidTokenError."""
    import jwt

    try:
        claims: Claims = jwt.decode(
            token,
            found.key.key,
            algorithms=[found.algorithm],
            audience=audience,
            issuer=issuer,
            leeway=leeway_seconds,
            options={"require": ["exp", "iss", "aud"]},
        )
    except jwt.PyJWTError as error:
        raise InvalidTokenError(type(error).__name__) from None  # its text may repeat a claim
    return claims


def _check_length(token: str) -> None:
    if len(token) > LONGEST_CREDENTIALS:
        raise InvalidTokenError("the token is too long")


def _read_header(token: str) -> Claims:
    """Not verified yet."""
    header = _decode_part(token.partition(".")[0])
    if "crit" in header or "b64" in header:
        raise InvalidTokenError("it needs an extension that is not supported")
    if str(header.get("typ", "")).lower().removeprefix("application/") not in _TYPES:
        raise InvalidTokenError("it is a token of another type")
    return header


def _decode_part(text: str) -> Claims:
    try:
        part = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        part = None
    if not isinstance(part, dict):
        raise InvalidTokenError("it is not a JWT")
    return part
