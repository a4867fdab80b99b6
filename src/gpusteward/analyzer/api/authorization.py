"""Access checks as dependencies of routes: `may_read`, `may_read_all`, `may_operate` and `may_administer`.

They find out who sends a request: a bearer token of the settings, a token of an OpenID Connect provider or of a service
account, the session of a browser that signed in with one of these, the header of a configured reverse proxy, or a
password or certificate of the web config file; and they give the endpoint the components that this identity may use.
What is local: `http_server/local_clients.py`.
"""

from dataclasses import replace
from glob import escape

from fastapi import Request

from gpusteward.analyzer.api.dependencies import ApiDependencies, find_identity, find_service
from gpusteward.analyzer.api.http.identities import (
    CSRF_HEADER,
    Identity,
    InvalidIdentityError,
    Method,
    Person,
    apply_rules,
    has_identity_header,
    is_csrf_token,
    is_proxy,
    read_cookie,
    read_proxy_headers,
)
from gpusteward.analyzer.api.http.jwt_tokens import (
    InvalidTokenError,
    KeysUnavailableError,
    looks_like_token,
    read_issuer,
)
from gpusteward.analyzer.api.http.middleware import is_known_client
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.api.http.roles import Role, parse_bearer, read_authorization
from gpusteward.analyzer.api.http.token_verifiers import ServiceAccount
from gpusteward.core.messages import Message
from gpusteward.core.namespaces import NamespacePattern, VisibleNamespaces
from gpusteward.http_server.local_clients import find_page_host, is_local_request
from gpusteward.messages.errors import api_errors

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="gpusteward"'}


async def may_read(request: Request) -> None:
    """Raises a 401, 403 or 503 problem."""
    dependencies = await find_service(request)
    await _grant(request, await find_reader(request, dependencies), dependencies)


async def find_reader(request: Request, dependencies: ApiDependencies) -> Identity:
    """Raises a 401, 403 or 503 problem."""
    identity = await _identify(request, dependencies)
    if identity is not None:
        return identity
    allowed = dependencies.settings.current.server.anonymous_reads
    if allowed != "always" and (allowed != "loopback" or not _is_trusted(request, dependencies)):
        raise _unauthorized(api_errors.READING_NEEDS_TOKEN)
    return Identity("anonymous", Role.VIEWER)


async def may_read_all(request: Request) -> None:
    """For what cannot be divided by namespace. Raises a 401, 403 or 503 problem."""
    await may_read(request)
    _check_sees_all(await find_identity(request))


def _check_sees_all(identity: Identity) -> None:
    if identity.visible is not None:
        raise ProblemError(403, "limited", api_errors.NEEDS_ALL_NAMESPACES)


async def may_inspect(request: Request) -> None:
    """For reading what only operators should see. Raises a 401, 403 or 503 problem."""
    dependencies = await find_service(request)
    await _grant(request, await find_operator(request, dependencies), dependencies)


async def may_operate(request: Request) -> None:
    """Raises a 401, 403 or 503 problem. Where no token and no sign-in is configured, only local requests may write."""
    dependencies = await find_service(request)
    identity = await find_operator(request, dependencies)
    check_site(request, identity, dependencies)
    await _grant(request, identity, dependencies)


async def may_administer(request: Request) -> None:
    """For what stops or starts reclaim as a whole. Raises a 401, 403 or 503 problem."""
    await may_operate(request)
    identity = await find_identity(request)
    if identity.method != "anonymous" and not identity.role.includes(Role.ADMIN):
        raise ProblemError(403, "forbidden", api_errors.ROLE_TOO_LOW, role=identity.role, needed=Role.ADMIN)


def check_site(request: Request, identity: Identity, dependencies: ApiDependencies) -> None:
    """Raises a 403 problem for a change that a browser sends without its user: what identifies the user, a cookie or
    the sign-in at a proxy, is sent with requests of any page."""
    session = identity.session
    if session is not None and not is_csrf_token(session.csrf, request.headers):
        _count(request, dependencies, "no_csrf_token")
        raise ProblemError(403, "csrf", api_errors.CSRF_NEEDED, header=CSRF_HEADER)
    if (session is not None or identity.method in ("proxy", "oidc")) and is_cross_site(request):
        _count(request, dependencies, "cross_site")
        raise ProblemError(403, "cross-site", api_errors.CROSS_SITE)


async def find_operator(request: Request, dependencies: ApiDependencies) -> Identity:
    """Raises a 401, 403 or 503 problem."""
    identity = await _identify(request, dependencies)
    settings = dependencies.settings
    if not (settings.roles.are_set or settings.current.auth.is_configured) and _is_trusted(request, dependencies):
        identity = Identity("anonymous", Role.OPERATOR)
    if identity is None:
        raise _unauthorized(api_errors.WRITING_NEEDS_TOKEN)
    if not identity.role.includes(Role.OPERATOR):
        raise ProblemError(403, "forbidden", api_errors.ROLE_TOO_LOW, role=identity.role, needed=Role.OPERATOR)
    _check_sees_all(identity)
    return identity


async def _grant(request: Request, identity: Identity, dependencies: ApiDependencies) -> None:
    """The only place where an endpoint gets its components from. Raises a 503 problem beyond the client's share."""
    dependencies.shares.take(request.scope, identity)
    request.state.identity = identity
    request.state.dependencies = await dependencies.limit_to(identity.visible)


async def _identify(request: Request, dependencies: ApiDependencies) -> Identity | None:
    """None without credentials. Raises a problem for unknown credentials, also where none are needed."""
    header, proxy = read_authorization(request.headers), dependencies.settings.current.auth.proxy
    from_proxy = _is_from_proxy(request, dependencies)
    if proxy.addresses and not from_proxy and has_identity_header(request.headers, proxy):
        _count(request, dependencies, "not_a_proxy")
        raise ProblemError(403, "not-a-proxy", api_errors.NOT_A_PROXY)
    if len(header) > 1:
        _count(request, dependencies, "invalid_header", "there is more than one Authorization")
        raise _unauthorized(api_errors.INVALID_IDENTITY)
    bearer = parse_bearer(header[0]) if header else None
    if bearer is not None or (header and not is_known_client(request.scope)):
        return await identify_token(request, bearer, dependencies)
    if signed_in := await _read_session(request, dependencies):
        _refuse_second_identity(request, signed_in, dependencies)
        return signed_in
    if from_proxy:  # whatever password or certificate the proxy itself has
        person = _read_person(request, dependencies)
        return person and _give_role(request, person, dependencies, method="proxy")
    return Identity("web-config", Role.VIEWER) if is_known_client(request.scope) else None


def _refuse_second_identity(request: Request, signed_in: Identity, dependencies: ApiDependencies) -> None:
    """A browser sends its cookie and what the proxy adds without being asked: of two people, none is believed. A token
    that a client sends itself says who it wants to be. Raises a 401 or 403 problem."""
    person = _read_person(request, dependencies) if _is_from_proxy(request, dependencies) else None
    if person is not None and person.user != signed_in.user:
        _count(request, dependencies, "two_identities")
        raise ProblemError(403, "two-identities", api_errors.TWO_IDENTITIES)


async def _read_session(request: Request, dependencies: ApiDependencies) -> Identity | None:
    """None without a session. A session whose token is no longer valid ends."""
    value = read_cookie(request.headers)
    session = dependencies.sessions.find(value) if value else None
    if session is None:
        return None
    try:
        identity = await identify_token(request, session.bearer, dependencies)
    except ProblemError as error:
        if error.status != 401:
            raise
        dependencies.sessions.close(value)
        return None
    return replace(identity, session=session)


async def identify_token(request: Request, bearer: str | None, dependencies: ApiDependencies) -> Identity:
    """Whose token it is: one of the settings, of the provider, or of a service account. Raises a 401, 403 or 503
    problem."""
    role, auth = dependencies.settings.roles.find_role(bearer), dependencies.settings.current.auth
    if role is not None:
        return Identity("token", role, credential=str(hash(bearer)))  # keyed anew by every process
    if not ((auth.oidc.issuer or auth.kubernetes.enabled) and bearer and looks_like_token(bearer)):
        _count(request, dependencies, "unknown_token")
        raise _unauthorized(api_errors.UNKNOWN_TOKEN)
    try:
        if auth.kubernetes.enabled and read_issuer(bearer) != auth.oidc.issuer:
            account = await dependencies.service_accounts.verify(bearer, dependencies.settings.current)
            return _identify_account(account, dependencies)
        person = await dependencies.oidc.verify(bearer, auth.oidc)
    except InvalidTokenError as error:
        _count(request, dependencies, "invalid_token", str(error))
        raise _unauthorized(api_errors.UNKNOWN_TOKEN) from None
    except KeysUnavailableError:
        _count(request, dependencies, "no_keys")
        raise ProblemError(503, "no-keys", api_errors.NO_KEYS, headers={"Retry-After": "30"}) from None
    return _give_role(request, person, dependencies, method="oidc")


def _identify_account(account: ServiceAccount, dependencies: ApiDependencies) -> Identity:
    """Raises a 403 problem where it is unknown which of several clusters the account belongs to."""
    visible = None
    if not account.sees_all_namespaces:
        cluster = _find_own_cluster(dependencies)
        if cluster is None:
            raise ProblemError(403, "no-role", api_errors.WHICH_CLUSTER)
        visible = VisibleNamespaces(frozenset({NamespacePattern(account.namespace, escape(cluster))}))
    return Identity("service-account", account.role, account.user, visible=visible)


def _find_own_cluster(dependencies: ApiDependencies) -> str | None:
    """The name of the API server's cluster in the last result: that of the settings, or the only one; None: unknown."""
    own, published = dependencies.settings.current.kubernetes.cluster, dependencies.results.published
    clusters = published.result.verdicts.usage.clusters if published else ()
    if own in clusters or not clusters:
        return own if clusters else ""
    return clusters[0] if len(clusters) == 1 and not own else None


def _read_person(request: Request, dependencies: ApiDependencies) -> Person | None:
    """Whom the proxy names. Raises a 401 problem."""
    try:
        return read_proxy_headers(request.headers, dependencies.settings.current.auth.proxy)
    except InvalidIdentityError as error:
        _count(request, dependencies, "invalid_header", str(error))
        raise _unauthorized(api_errors.INVALID_IDENTITY) from None


def _give_role(request: Request, person: Person, dependencies: ApiDependencies, *, method: Method) -> Identity:
    identity = apply_rules(person, dependencies.settings.current.auth.rules, method=method)
    if identity is None:
        _count(request, dependencies, "no_rule", f"no rule for the user {person.user}")
        raise ProblemError(403, "no-role", api_errors.NO_ROLE)
    return identity


def _is_from_proxy(request: Request, dependencies: ApiDependencies) -> bool:
    return request.client is not None and is_proxy(request.client.host, dependencies.settings.current.auth.proxy)


def _is_trusted(request: Request, dependencies: ApiDependencies) -> bool:
    """Whether the request is local. One from a proxy is not, even if the proxy is on this machine and forgot to say
    that it forwards."""
    return is_local(request) and not _is_from_proxy(request, dependencies)


def is_cross_site(request: Request) -> bool:
    """Whether a page of another site makes a browser send this, with what it signed in with at the proxy."""
    site, page = request.headers.get("sec-fetch-site"), find_page_host(request.headers)
    if site is not None or page is None:
        return site not in (None, "none", "same-origin")
    return page not in (request.headers.get("host"), request.headers.get("x-forwarded-host"))


def _count(request: Request, dependencies: ApiDependencies, reason: str, detail: str = "") -> None:
    dependencies.refusals.add(reason, peer=request.client.host if request.client else "", detail=detail)


def _unauthorized(message: Message) -> ProblemError:
    return ProblemError(401, "unauthorized", message, headers=_CHALLENGE)


def is_local(request: Request) -> bool:
    """Whether the request comes from this machine."""
    return request.client is not None and is_local_request(request.client.host, request.headers)
