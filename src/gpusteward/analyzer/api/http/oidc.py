"""Tokens of an OpenID Connect provider as bearer tokens: signature, issuer, audience, times; then user and groups."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gpusteward.analyzer.api.http.identities import InvalidIdentityError, Person, check_person
from gpusteward.analyzer.api.http.signing_keys import SigningKey, SigningKeys
from gpusteward.analyzer.settings.auth import OidcSettings

LONGEST_TOKEN = 16 * 1024
_TYPES = ("", "jwt", "at+jwt")
"""Of a token for an application. A logout token of the same provider is of another type."""

Claims = Mapping[str, Any]


class InvalidTokenError(Exception):
    """A token that is not accepted; the text says why, for the log, and contains nothing of the token."""


class OidcVerifier:
    """Verifies tokens by the settings in effect. Used on the event loop only."""

    def __init__(self) -> None:
        self._keys: SigningKeys | None = None

    async def verify(self, token: str, settings: OidcSettings) -> Person:
        """Raises InvalidTokenError, and KeysUnavailableError while the keys cannot be read."""
        if len(token) > LONGEST_TOKEN:
            raise InvalidTokenError("the token is too long")
        keys = self._find_keys(settings)
        header = _read_header(token)
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in settings.algorithms:
            raise InvalidTokenError("its signature is of a kind that auth.oidc.algorithms does not list")
        if not isinstance(key_id, str | None):
            raise InvalidTokenError("its key id is not text")
        key = await keys.find(key_id, str(algorithm))
        if key is None:
            raise InvalidTokenError("it is signed with a key that the provider does not publish")
        return read_person(_decode(token, key, algorithm=str(algorithm), settings=settings), settings)

    def _find_keys(self, settings: OidcSettings) -> SigningKeys:
        if self._keys is None or self._keys.settings != settings:
            self._keys = SigningKeys(settings)
        return self._keys


def looks_like_token(bearer: str) -> bool:
    """Whether it has the three parts of a JWT: a bearer token of the settings that has them is found first."""
    return bearer.count(".") == 2


def _read_header(token: str) -> Claims:
    """Not verified yet."""
    text = token.partition(".")[0]
    try:
        header = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise InvalidTokenError("it is not a JWT")
    if "crit" in header or "b64" in header:
        raise InvalidTokenError("it needs an extension that is not supported")
    if str(header.get("typ", "")).lower().removeprefix("application/") not in _TYPES:
        raise InvalidTokenError("it is a token of another type")
    return header


def _decode(token: str, key: SigningKey, *, algorithm: str, settings: OidcSettings) -> Claims:
    import jwt

    try:
        claims: Claims = jwt.decode(
            token,
            key.key,
            algorithms=[algorithm],
            audience=settings.audience,
            issuer=settings.issuer,
            leeway=settings.leeway_seconds,
            options={"require": ["exp", "iss", "aud"]},
        )
    except jwt.PyJWTError as error:
        raise InvalidTokenError(type(error).__name__) from None  # its text may repeat a claim
    return claims


def read_person(claims: Claims, settings: OidcSettings) -> Person:
    """Raises InvalidTokenError."""
    user, groups = _find_claim(claims, settings.user_claim), _find_claim(claims, settings.groups_claim)
    if settings.user_claim == "email" and claims.get("email_verified") is not True:
        raise InvalidTokenError("its e-mail address is not verified")
    if not isinstance(user, str):
        raise InvalidTokenError("it has no text in the claim of auth.oidc.user_claim")
    try:
        return check_person(user, _list_groups(groups))
    except InvalidIdentityError as error:
        raise InvalidTokenError(str(error)) from None


def _find_claim(claims: Claims, name: str) -> object:
    """By its name, or by its path: `realm_access.roles`."""
    if not name or name in claims:
        return claims.get(name)
    found: object = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _list_groups(groups: object) -> Sequence[str]:
    """One text is one group: it is never split, because the name of a group may contain a comma."""
    if groups is None:
        return []
    listed = [groups] if isinstance(groups, str) else groups
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise InvalidTokenError("the claim of auth.oidc.groups_claim is not a list of texts")
    return listed
