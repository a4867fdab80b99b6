"""Access checks as dependencies of routes: `may_read` and `may_operate`.

What is local: `http_server/local_clients.py`.
"""

from fastapi import Request

from gpusteward.analyzer.api.dependencies import ApiDependencies, find_dependencies
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.api.http.roles import Role, parse_bearer
from gpusteward.analyzer.api.http.web_access import is_known_client
from gpusteward.core.messages import Message
from gpusteward.http_server.local_clients import is_local_request
from gpusteward.messages import api_errors

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
    if not dependencies.settings.roles.are_set and is_local(request):
        return
    if role is None:
        raise _unauthorized(api_errors.WRITING_NEEDS_TOKEN)
    if not role.includes(Role.OPERATOR):
        raise ProblemError(403, "forbidden", api_errors.ROLE_TOO_LOW, role=role, needed=Role.OPERATOR)


def _find_role(request: Request, dependencies: ApiDependencies) -> Role | None:
    """None without credentials; a viewer with those of the web config file. Raises a 401 problem for unknown ones, also
    where none are needed."""
    header = request.headers.get("authorization")
    if is_known_client(request.scope) and parse_bearer(header) is None:
        return Role.VIEWER
    if header is None:
        return None
    role = dependencies.settings.roles.find_role(parse_bearer(header))
    if role is None:
        raise _unauthorized(api_errors.UNKNOWN_TOKEN)
    return role


def _unauthorized(message: Message) -> ProblemError:
    return ProblemError(401, "unauthorized", message, headers=_CHALLENGE)


def is_local(request: Request) -> bool:
    """Whether the request comes from this machine."""
    return request.client is not None and is_local_request(request.client.host, request.headers)
