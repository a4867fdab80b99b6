"""/api/v1/me: who the client is, and what it may do."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Response
from pydantic import Field

from gpusteward.analyzer.api.authorization import may_read
from gpusteward.analyzer.api.dependencies import Client
from gpusteward.analyzer.api.http.identities import Method
from gpusteward.analyzer.api.http.responses import send_json
from gpusteward.analyzer.api.http.roles import Role
from gpusteward.analyzer.api.http.routes import DocumentedRoute

router = APIRouter(route_class=DocumentedRoute, prefix="/api/v1", dependencies=[Depends(may_read)], tags=["health"])


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


@router.get("/me", summary="Who you are", response_model=Me)
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
