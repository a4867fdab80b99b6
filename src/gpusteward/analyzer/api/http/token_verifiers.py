"""Tokens of the cluster's service accounts and of an OpenID Connect provider as bearer tokens: the checks of every JWT,
then role or user and groups.

`kubectl gpusteward` and `kubectl create token` get those of service accounts. The name of the account is its role:
`gpusteward-viewer`, `gpusteward-operator` and `gpusteward-admin` in the analyzer's own namespace. `gpusteward-viewer`
of any other namespace sees that namespace. So the right to create a token of such an account, which a Role in its
namespace gives, is the right to the role here.

Their signature is verified with the keys that the API server publishes, which every service account may read by
default: no request per token, and no right to create anything (TokenReview). In exchange, a token stays valid after its
account was deleted, which is why one that lives for longer than an hour is refused.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gpusteward.analyzer.api.http.identities import InvalidIdentityError, Person, check_person
from gpusteward.analyzer.api.http.jwt_tokens import (
    Claims,
    InvalidTokenError,
    KeysUnavailableError,
    SigningKey,
    SigningKeys,
    decode_claims,
    find_key,
    parse_keys,
    read_keys,
)
from gpusteward.analyzer.api.http.roles import Role
from gpusteward.analyzer.settings.auth import OidcSettings, is_secure_url
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.owners.cluster_owners import open_api
from gpusteward.analyzer.sources.owners.settings import KubernetesSettings
from gpusteward.kubernetes.api import SERVICE_ACCOUNT, read_own_namespace

LONGEST_LIFE_SECONDS = 3660
"""An hour, as `kubectl create token` and projected volumes have it by default, and a minute."""
ALGORITHMS = frozenset({"RS256", "ES256", "ES384", "ES512"})
"""Those that an API server can sign with."""
_USER = "system:serviceaccount:"
_ROLES: Mapping[str, Role] = {f"gpusteward-{role}": role for role in Role}


class ServiceAccount(NamedTuple):
    """An account, and the role that its name stands for."""

    namespace: str
    name: str
    role: Role
    sees_all_namespaces: bool  # otherwise only its own

    @property
    def user(self) -> str:
        """As the API server names it."""
        return f"{_USER}{self.namespace}:{self.name}"


class ServiceAccountVerifier:
    """Verifies tokens of the service accounts of one cluster. Used on the event loop only."""

    def __init__(self, environ: Mapping[str, str] = os.environ, *, account: Path = SERVICE_ACCOUNT) -> None:
        """`account`: the folder of the analyzer's own service account."""
        self._environ = environ
        self._account = account
        self._namespace = read_own_namespace(environ, account=account)
        self._settings: KubernetesSettings | None = None
        self._keys: _ClusterKeys | None = None

    async def verify(self, token: str, settings: Settings) -> ServiceAccount:
        """Raises InvalidTokenError, and KeysUnavailableError while the keys cannot be read."""
        keys = self._find_keys(settings.kubernetes)
        found = await find_key(token, keys.signing_keys, algorithms=ALGORITHMS)
        claims = decode_claims(token, found, issuer=keys.issuer, audience=[settings.auth.kubernetes.audience])
        _check_life(claims)
        return self._find_role(claims)

    def _find_keys(self, settings: KubernetesSettings) -> "_ClusterKeys":
        if self._keys is None or self._settings != settings:
            self._settings, self._keys = settings, _ClusterKeys(settings, self._environ, self._account)
        return self._keys

    def _find_role(self, claims: Claims) -> ServiceAccount:
        namespace, _, name = str(claims.get("sub", "")).removeprefix(_USER).partition(":")
        is_own, role = namespace == self._namespace, _ROLES.get(name)
        if role is None or not namespace or not (is_own or role is Role.VIEWER):
            raise InvalidTokenError("the name of the service account stands for no role")
        return ServiceAccount(namespace, name, role, is_own)


class _ClusterKeys:
    """The keys of an API server, and the issuer that it writes into its tokens."""

    def __init__(self, settings: KubernetesSettings, environ: Mapping[str, str], account: Path) -> None:
        self.issuer = ""  # until the keys are read
        self.signing_keys = SigningKeys(self._read, issuer="the cluster's service accounts")
        self._settings = settings
        self._environ = environ
        self._account = account

    def _read(self) -> Sequence[SigningKey]:
        """Blocks. Raises SourceError, KeysUnavailableError."""
        api = open_api(self._settings, self._environ, self._account)
        if not is_secure_url(api.url):
            raise KeysUnavailableError("kubernetes.api_url is not an https URL")
        document = api.read_json("/.well-known/openid-configuration", dict[str, Any])
        keys = parse_keys(bytes(api.read_json("/openid/v1/jwks", msgspec.Raw, accept="application/jwk-set+json")))
        self.issuer = str(document.get("issuer", ""))
        return keys


def _check_life(claims: Claims) -> None:
    begun, ends = claims.get("iat"), claims.get("exp")
    if not isinstance(begun, int | float) or not isinstance(ends, int | float) or ends - begun > LONGEST_LIFE_SECONDS:
        raise InvalidTokenError("it is valid for more than an hour")


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
