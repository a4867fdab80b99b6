"""Access checks as dependencies of routes: `may_read` and `may_operate`.

The address of the peer decides whether a request is local. Headers can only revoke that: a forwarded request, one for
another host name (DNS rebinding in a browser), or one sent by a foreign web page is not local.
"""

import ipaddress
from urllib.parse import urlsplit

from fastapi import Request

from gpusteward.analyzer.api.dependencies import ApiDependencies, find_dependencies
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.api.http.roles import Role, parse_bearer
from gpusteward.core.messages import Message
from gpusteward.messages import api_errors

_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="gpusteward"'}


async def may_read(request: Request) -> None:
    """Raises a 401 or 403 problem."""
    dependencies = await find_dependencies(request)
    if _find_role(request, dependencies) is not None:
        return
    allowed = dependencies.settings.current.server.anonymous_reads
    if allowed == "always" or (allowed == "loopback" and is_local(request)):
        return
    raise _unauthorized(api_errors.READING_NEEDS_TOKEN)


async def may_operate(request: Request) -> None:
    """Raises a 401 or 403 problem. Where no token is configured, only local requests may write."""
    dependencies = await find_dependencies(request)
    role = _find_role(request, dependencies)
    if role is None and not dependencies.settings.roles.are_set and is_local(request):
        return
    if role is None:
        raise _unauthorized(api_errors.WRITING_NEEDS_TOKEN)
    if not role.includes(Role.OPERATOR):
        raise ProblemError(403, "forbidden", api_errors.ROLE_TOO_LOW, role=role, needed=Role.OPERATOR)


def _find_role(request: Request, dependencies: ApiDependencies) -> Role | None:
    """None without credentials. Raises a 401 problem for unknown credentials, also where none are needed."""
    header = request.headers.get("authorization")
    if header is None:
        return None
    role = dependencies.settings.roles.find_role(parse_bearer(header))
    if role is None:
        raise _unauthorized(api_errors.UNKNOWN_TOKEN)
    return role


def _unauthorized(message: Message) -> ProblemError:
    return ProblemError(401, "unauthorized", message, headers=_CHALLENGE)


def is_local(request: Request) -> bool:
    if request.client is None or not _is_loopback(request.client.host):
        return False
    headers = request.headers
    if any(name in headers for name in _FORWARDED):
        return False
    return _is_local_name(headers.get("host", "")) and not _is_from_foreign_page(request)


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


def _is_from_foreign_page(request: Request) -> bool:
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return True
    origin = request.headers.get("origin")
    return origin is not None and origin.partition("//")[2] != request.headers.get("host")
