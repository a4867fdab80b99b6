"""Signed tokens (JWT) as bearer tokens, of whatever issuer: their parts, and the checks of signature, issuer, audience
and times."""

import base64
import binascii
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from gpusteward.analyzer.api.http.signing_keys import SigningKey, SigningKeys
from gpusteward.http_server.header_limits import LONGEST_CREDENTIALS

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
