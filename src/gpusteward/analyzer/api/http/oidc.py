"""Tokens of an OpenID Connect provider as bearer tokens: the checks of every JWT, then user and groups."""

from collections.abc import Mapping, Sequence

from gpusteward.analyzer.api.http.identities import InvalidIdentityError, Person, check_person
from gpusteward.analyzer.api.http.jwt_tokens import (
    Claims,
    InvalidTokenError,
    SigningKeys,
    decode_claims,
    find_key,
    read_keys,
)
from gpusteward.analyzer.settings.auth import OidcSettings


class OidcVerifier:
    """Verifies tokens by the settings in effect. Used on the event loop only."""

    def __init__(self) -> None:
        self._settings: OidcSettings | None = None
        self._keys: SigningKeys | None = None

    async def verify(self, token: str, settings: OidcSettings) -> Person:
        """Raises InvalidTokenError, and KeysUnavailableError while the keys cannot be read."""
        found = await find_key(token, self._find_keys(settings), algorithms=settings.algorithms)
        claims = decode_claims(
            token,
            found,
            issuer=settings.issuer,
            audience=settings.audience,
            leeway_seconds=settings.leeway_seconds,
        )
        return read_person(claims, settings)

    def _find_keys(self, settings: OidcSettings) -> SigningKeys:
        if self._keys is None or self._settings != settings:
            self._settings, self._keys = settings, SigningKeys(lambda: read_keys(settings), issuer=settings.issuer)
        return self._keys


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
