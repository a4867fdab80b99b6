"""/api/v1/session: signing in and out with a browser, and what the web UI needs to know first.
/api/v1/me: who the client is, and what it may do.
"""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from gpusteward import __version__
from gpusteward.analyzer.api.authorization import (
    check_site,
    find_operator,
    find_reader,
    identify_token,
    is_cross_site,
    may_read,
)
from gpusteward.analyzer.api.dependencies import ApiDependencies, Client, Service
from gpusteward.analyzer.api.http.identities import Identity, Method, is_proxy, read_cookie, write_cookie
from gpusteward.analyzer.api.http.problems import ProblemError, find_language
from gpusteward.analyzer.api.http.responses import DocumentedRoute, format_utc, send_json
from gpusteward.analyzer.api.http.roles import Role
from gpusteward.analyzer.reclaim.permission import Mode
from gpusteward.logs import Log
from gpusteward.messages.errors import api_errors

router = APIRouter(route_class=DocumentedRoute, prefix="/api/v1")


@dataclass(frozen=True, slots=True)
class Me:
    """The client of this request."""

    user: Annotated[str, Field(description="Empty for a token of the settings and for an anonymous client.")]
    groups: list[str]
    role: Role
    method: Annotated[Method, Field(description="How it was identified.")]
    namespaces: Annotated[
        list[str] | None,
        Field(
            description="Names or patterns of the namespaces that it sees, CLUSTER/NAMESPACE if only there; null: all."
        ),
    ]


@router.get("/me", summary="Who you are", response_model=Me, tags=["health"], dependencies=[Depends(may_read)])
async def show_me(client: Client) -> Response:
    """User, role and visible namespaces of the client, and how it was identified."""
    return send_json(
        Me(
            user=client.user,
            groups=list(client.groups),
            role=client.role,
            method=client.method,
            namespaces=None if client.visible is None else client.visible.names,
        )
    )


log = Log(__name__)


HOUR_SECONDS = 3600


class SignIn(BaseModel):
    """What somebody signs in with."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    token: str = Field(
        min_length=1,
        max_length=16_384,
        description="A token of the settings, of the OpenID Connect provider, or of a service account.",
    )


@dataclass(frozen=True, slots=True)
class Features:
    """Which parts of the product are in use here."""

    ledger: Annotated[bool, Field(description="GPU-hours and costs are recorded.")]
    ai: Annotated[bool, Field(description="A language model gives second opinions.")]
    notify: Annotated[bool, Field(description="There is a channel for notices.")]
    reclaim: Annotated[bool, Field(description="GPUs of idle workloads may be taken back, or that is planned.")]


@dataclass(frozen=True, slots=True)
class SessionState:
    """Who the client is, what it may do, and what it needs to know to show anything."""

    signed_in: Annotated[bool, Field(description="Whether there is a session that can be ended.")]
    may_read: bool
    may_operate: bool
    may_administer: Annotated[bool, Field(description="Whether it may stop and start reclaim as a whole.")]
    reason: Annotated[str, Field(description="Why it may not read; empty if it may.")]
    user: Annotated[str, Field(description="Empty for a token of the settings and for an anonymous client.")]
    groups: list[str]
    role: Annotated[Role | None, Field(description="null: it may not read.")]
    method: Annotated[Method | None, Field(description="How it was identified.")]
    namespaces: Annotated[list[str] | None, Field(description="As in /api/v1/me; null: all, or it may not read.")]
    csrf: Annotated[str, Field(description="To be repeated in X-Gpusteward-CSRF by changes; empty: no session.")]
    expires_at: Annotated[str | None, Field(description="When the session ends; null without one.")]
    version: Annotated[str | None, Field(description="This and the following are null if it may not read.")]
    currency: str | None
    interval_seconds: Annotated[float | None, Field(description="Between two results.")]
    features: Features | None


@router.get("/session", summary="The session", response_model=SessionState, tags=["session"])
async def show_session(request: Request, dependencies: Service) -> Response:
    """Who the client is and what it may do. 200 also for a client that may not read: `may_read` is false then."""
    return send_json(await _describe(request, dependencies))


@router.post("/session", summary="Sign in", response_model=SessionState, tags=["session"])
async def sign_in(request: Request, dependencies: Service, body: SignIn) -> Response:
    """Exchange a token for a session: an HttpOnly cookie that lasts for twelve hours. Changes within the
    session must repeat `csrf` in the header X-Gpusteward-CSRF.

    429 after ten failures within a minute from one address.
    """
    peer = _find_peer(request, dependencies)
    if is_cross_site(request):
        raise ProblemError(403, "cross-site", api_errors.CROSS_SITE)
    if dependencies.sign_ins.is_exceeded(peer):
        headers = {"Retry-After": "60"}
        raise ProblemError(429, "too-many-sign-ins", api_errors.TOO_MANY_SIGN_INS, headers=headers)
    try:
        identity = await identify_token(request, body.token.strip(), dependencies)
    except ProblemError as error:
        if error.status == 401:
            dependencies.sign_ins.add_failure(peer)
            raise ProblemError(401, "unauthorized", api_errors.UNKNOWN_TOKEN) from None
        raise
    dependencies.sessions.close(read_cookie(request.headers))
    seconds = dependencies.settings.current.server.session_hours * HOUR_SECONDS
    value, session = dependencies.sessions.open(
        body.token.strip(), seconds=seconds, owner=f"{identity} {identity.credential}"
    )
    log.info("signed_in", who=identity, peer=peer)
    state = _show(identity, dependencies, csrf=session.csrf, expires_at=session.expires_at)
    response = send_json(state)
    response.headers["Set-Cookie"] = write_cookie(value, seconds=seconds, is_secure=_is_secure(request))
    return response


@router.delete("/session", summary="Sign out", response_model=SessionState, tags=["session"])
async def sign_out(request: Request, dependencies: Service) -> Response:
    """End the session. Without one nothing happens."""
    value = read_cookie(request.headers)
    session = dependencies.sessions.find(value) if value else None
    if session is not None:
        check_site(request, Identity("token", Role.VIEWER, session=session), dependencies)
        dependencies.sessions.close(value)
    response = send_json(await _describe(request, dependencies))
    response.headers["Set-Cookie"] = write_cookie("", seconds=0, is_secure=_is_secure(request))
    return response


async def _describe(request: Request, dependencies: ApiDependencies) -> SessionState:
    try:
        identity = await find_reader(request, dependencies)
    except ProblemError as error:
        if error.status not in (401, 403):
            raise
        return _refuse(error.text(find_language(request.headers)))
    try:
        await find_operator(request, dependencies)
        may_operate = True
    except ProblemError:
        may_operate = False
    session = identity.session
    return _show(
        identity,
        dependencies,
        may_operate=may_operate,
        csrf=session.csrf if session else "",
        expires_at=session.expires_at if session else None,
    )


def _refuse(reason: str) -> SessionState:
    return SessionState(
        signed_in=False,
        may_read=False,
        may_operate=False,
        may_administer=False,
        reason=reason,
        user="",
        groups=[],
        role=None,
        method=None,
        namespaces=None,
        csrf="",
        expires_at=None,
        version=None,
        currency=None,
        interval_seconds=None,
        features=None,
    )


def _show(
    identity: Identity,
    dependencies: ApiDependencies,
    *,
    csrf: str,
    expires_at: float | None,
    may_operate: bool | None = None,
) -> SessionState:
    settings = dependencies.settings.current
    is_operator = identity.role.includes(Role.OPERATOR) if may_operate is None else may_operate
    return SessionState(
        signed_in=bool(csrf),
        may_read=True,
        may_operate=is_operator,
        may_administer=is_operator and (identity.method == "anonymous" or identity.role.includes(Role.ADMIN)),
        reason="",
        user=identity.user,
        groups=list(identity.groups),
        role=identity.role,
        method=identity.method,
        namespaces=None if identity.visible is None else identity.visible.names,
        csrf=csrf,
        expires_at=format_utc(expires_at),
        version=__version__,
        currency=settings.prices.currency,
        interval_seconds=settings.scheduler.interval,
        features=Features(
            ledger=settings.ledger.enabled,
            ai=settings.ai.enabled,
            notify=bool(settings.notify.channels),
            reclaim=dependencies.reclaim is not None and dependencies.reclaim.mode is not Mode.OFF,
        ),
    )


def _find_peer(request: Request, dependencies: ApiDependencies) -> str:
    """The address of the client: as a configured proxy names it, otherwise that of the connection."""
    peer = request.client.host if request.client else ""
    if is_proxy(peer, dependencies.settings.current.auth.proxy):
        return request.headers.get("x-forwarded-for", peer).rpartition(",")[2].strip()[:64]
    return peer


def _is_secure(request: Request) -> bool:
    """Whether the browser uses TLS, here or at a proxy. A client that claims it wrongly only refuses its own cookie."""
    forwarded = request.headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
    return request.url.scheme == "https" or forwarded == "https"
