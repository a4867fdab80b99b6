"""`auth.*`: who signs in elsewhere, at a reverse proxy or an OpenID Connect provider, and which role that gives."""

import re
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from gpusteward.analyzer.setting_values import SECTION, check_url, split_list
from gpusteward.core.settings import InvalidSettingError

Network = IPv4Network | IPv6Network
ANYONE = "*"
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_PATTERN = re.compile(r"[^\s/\[\]]{1,253}")
_TAKEN = (
    *("authorization", "x-gpusteward-authorization", "cookie", "host", "origin"),
    *("forwarded", "via", "x-forwarded-for", "x-forwarded-host"),
)
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


def parse_networks(addresses: Sequence[str]) -> tuple[Network, ...]:
    """Raises InvalidSettingError for anything but addresses and networks, and for the network of all addresses."""
    try:
        networks = tuple(ip_network(each) for each in addresses)
    except ValueError:
        raise InvalidSettingError(
            "write IP addresses or networks, such as 10.0.3.7 or 10.0.3.0/28 (without host bits)"
        ) from None
    if any(each.prefixlen == 0 for each in networks):
        raise InvalidSettingError(
            "this trusts every address: anybody could claim to be anybody; write the addresses of the proxies"
        )
    return networks


def _check_networks(addresses: list[str]) -> list[str]:
    parse_networks(addresses)
    return addresses


def _check_header(name: str) -> str:
    if name and (not _HEADER.fullmatch(name) or name.lower() in _TAKEN):
        raise InvalidSettingError("write the name of a header that the proxy sets, such as X-Forwarded-User")
    return name


def _check_pattern(pattern: str) -> str:
    """Only `*` and `?` have a meaning: a set in brackets would be neither a name nor a pattern people expect."""
    if not _PATTERN.fullmatch(pattern):
        raise InvalidSettingError(
            "namespaces and clusters: write names, or patterns with `*` and `?`, such as vision-*"
        )
    return pattern


def is_secure_url(url: str) -> bool:
    """Whoever can change the keys on their way can sign in as anybody."""
    try:
        scheme, host = urlsplit(url).scheme, urlsplit(url).hostname
    except ValueError:
        return False
    return bool(host) and (scheme == "https" or (scheme == "http" and host in _LOCAL_HOSTS))


def _check_secure_url(url: str) -> str:
    if check_url(url) and not is_secure_url(check_url(url)):
        raise InvalidSettingError(
            "write an https URL: over plain http anybody on the way could replace the keys; or a file"
        )
    return url.strip()


def _check_keys_url(url: str) -> str:
    return url.strip() if url.strip().startswith("file:///") else _check_secure_url(url)


SecureUrl = Annotated[str, AfterValidator(_check_secure_url)]
Header = Annotated[str, AfterValidator(_check_header)]
Names = Annotated[list[str], BeforeValidator(split_list)]
People = Annotated[list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]
"""Not split: the name of a group may contain blanks and commas."""
Patterns = Annotated[list[Annotated[str, AfterValidator(_check_pattern)]], BeforeValidator(split_list)]
Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]  # signatures with a private key only: a public key must never be usable as a shared secret


class ProxySettings(BaseModel):
    """A reverse proxy in front of the analyzer that signs people in, such as oauth2-proxy."""

    model_config = SECTION

    addresses: Annotated[Names, AfterValidator(_check_networks)] = Field(
        default_factory=list,
        description="Addresses or networks of the proxies, such as 10.0.3.7 or 10.0.3.0/28. Their identity headers are "
        "believed; the same headers from any other address are refused. Empty: no headers are read.",
    )
    user_header: Header = Field(
        default="X-Forwarded-User", min_length=1, description="Header with the name of the person."
    )
    groups_header: Header = Field(
        default="X-Forwarded-Groups", description="Header with the groups of the person. Empty: none."
    )
    groups_separator: str = Field(
        default=",", min_length=1, max_length=1, description="Between two groups in this header."
    )

    @model_validator(mode="after")
    def _check_headers(self) -> Self:
        if self.user_header.lower() == self.groups_header.lower():
            raise InvalidSettingError("user_header and groups_header must be different headers")
        return self


class OidcSettings(BaseModel):
    """An OpenID Connect provider whose tokens are accepted as bearer tokens."""

    model_config = SECTION

    issuer: SecureUrl = Field(
        default="", description="URL of the provider, exactly as in the claim `iss`. Empty: its tokens are refused."
    )
    audience: Names = Field(
        default_factory=list, description="Client ids: the claim `aud` of a token must contain one of them."
    )
    jwks_url: Annotated[str, AfterValidator(_check_keys_url)] = Field(
        default="",
        description="URL of the provider's public keys; file:///PATH of a file with them (JWKS), where the provider "
        "cannot be reached from here. Empty: as its discovery document says.",
    )
    ca_file: Path | None = Field(
        default=None, description="Certificates that the provider's must be signed by; default: those of the system."
    )
    algorithms: Annotated[list[Algorithm], BeforeValidator(split_list)] = Field(
        default=["RS256", "ES256"], min_length=1, description="Accepted signatures."
    )
    leeway_seconds: ClassVar[float] = 30
    """Difference of the clocks for which an expired token is still accepted."""
    user_claim: str = Field(
        default="sub",
        min_length=1,
        description="Claim with the name of the person. With `email`, only verified addresses are accepted.",
    )
    groups_claim: str = Field(
        default="groups", description="Claim with the groups; inside an object as in realm_access.roles. Empty: none."
    )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.issuer and not self.audience:
            raise InvalidSettingError(
                "issuer needs audience: without it, tokens made for other applications would be accepted"
            )
        return self


class ServiceAccountSettings(BaseModel):
    """Tokens of the cluster's service accounts, as `kubectl gpusteward` sends them; no rules are needed for them."""

    model_config = SECTION

    enabled: bool = Field(
        default=False,
        description="Accept tokens of service accounts. `gpusteward-viewer`, `gpusteward-operator` and "
        "`gpusteward-admin` in the analyzer's namespace have these roles; `gpusteward-viewer` in another namespace "
        "sees that namespace.",
    )
    audience: ClassVar[str] = "gpusteward"
    """Audience that the tokens must be made for: the one that `kubectl gpusteward` asks for."""


class AuthRule(BaseModel):
    """People and their role. An unknown key is an error: a misspelled `namespaces` would show all of them."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    users: People = Field(default_factory=list)
    groups: People = Field(default_factory=list)
    role: Literal["viewer", "operator", "admin"]
    namespaces: Patterns = Field(default_factory=lambda: ["*"], min_length=1)
    clusters: Patterns = Field(default_factory=lambda: ["*"], min_length=1)

    def matches(self, user: str, groups: Sequence[str]) -> bool:
        """By one of the users or one of the groups."""
        return ANYONE in self.users or user in self.users or not set(groups).isdisjoint(self.groups)

    @property
    def is_limited(self) -> bool:
        return "*" not in self.namespaces or "*" not in self.clusters

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if not (self.users or self.groups):
            raise InvalidSettingError("a rule needs users or groups; user `*` is everybody who is signed in")
        if self.is_limited and self.role != "viewer":
            raise InvalidSettingError(
                f"namespaces and clusters limit viewers only; the role {self.role} acts on the whole site"
            )
        return self


class AuthSettings(BaseModel):
    """People who sign in elsewhere. Bearer tokens of `server.tokens_file` stay valid beside them."""

    model_config = SECTION

    proxy: ProxySettings = Field(default_factory=ProxySettings)
    oidc: OidcSettings = Field(default_factory=OidcSettings)
    kubernetes: ServiceAccountSettings = Field(default_factory=ServiceAccountSettings)
    rules: list[AuthRule] = Field(
        default_factory=list,
        description="A list of rules: `users` and `groups` (one match is enough; user `*`: everybody who signed in), "
        "`role` (viewer, operator, admin), and for viewers `namespaces` and `clusters` that they see (names or "
        "patterns such as `vision-*`; default: all). All rules that match count: the highest role, and the namespaces "
        "of all of them. Without a match access is refused.",
    )

    @property
    def is_configured(self) -> bool:
        """Whether anybody can sign in."""
        return bool(self.rules) or self.kubernetes.enabled

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        if (self.proxy.addresses or self.oidc.issuer) and not self.rules:
            raise InvalidSettingError("rules is empty: nobody who signs in would have a role; add a rule")
        return self
