"""Roles as dependencies of routes: who may read, who may act.

Whether a request comes from this machine is told by the address of its peer. Headers can only take that away: a
forwarded request, one for another host name (a rebound DNS name in somebody's browser), or one that a foreign web page
sends is not from here.
"""

import ipaddress
from urllib.parse import urlsplit

from fastapi import Request

from gpusteward.analyzer.api.dependencies import ApiDependencies, find_dependencies
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.api.http.roles import Role, bearer_of

_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="gpusteward"'}


async def may_read(request: Request) -> None:
    """Raises a 401 or 403 problem."""
    dependencies = await find_dependencies(request)
    if _role_of(request, dependencies) is not None:
        return
    allowed = dependencies.settings.current.server.anonymous_reads
    if allowed == "always" or (allowed == "loopback" and is_from_here(request)):
        return
    raise _unauthorized("reading needs a bearer token from here: send Authorization: Bearer TOKEN")


async def may_operate(request: Request) -> None:
    """Raises a 401 or 403 problem. Without any token in the settings only this machine may act."""
    dependencies = await find_dependencies(request)
    role = _role_of(request, dependencies)
    if role is None and not dependencies.settings.roles.are_set and is_from_here(request):
        return
    if role is None:
        raise _unauthorized("this needs the bearer token of an operator; server.tokens_file is where tokens are given")
    if not role.may_act_as(Role.OPERATOR):
        raise ProblemError(403, "forbidden", f"a token of role {role} may not do this; it takes {Role.OPERATOR}")


def _role_of(request: Request, dependencies: ApiDependencies) -> Role | None:
    """None without credentials. Raises a 401 problem for credentials nobody gave out, wherever they come from."""
    written = request.headers.get("authorization")
    if written is None:
        return None
    role = dependencies.settings.roles.role_of(bearer_of(written))
    if role is None:
        raise _unauthorized("the bearer token is not known here")
    return role


def _unauthorized(detail: str) -> ProblemError:
    return ProblemError(401, "unauthorized", detail, headers=_CHALLENGE)


def is_from_here(request: Request) -> bool:
    if request.client is None or not _is_loopback(request.client.host):
        return False
    headers = request.headers
    if any(name in headers for name in _FORWARDED):
        return False
    return _is_local_name(headers.get("host", "")) and not _is_sent_by_foreign_page(request)


def _is_loopback(address: str) -> bool:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return bool((mapped or parsed).is_loopback)


def _is_local_name(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return name == "localhost" or name.endswith(".localhost") or _is_loopback(name)


def _is_sent_by_foreign_page(request: Request) -> bool:
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return True
    origin = request.headers.get("origin")
    return origin is not None and origin.partition("//")[2] != request.headers.get("host")
