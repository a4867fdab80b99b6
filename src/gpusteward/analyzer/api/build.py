"""Builds the FastAPI application with the routes of all resources."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from gpusteward import __version__
from gpusteward.analyzer.api import docs, give_back_page, metrics_page, questions, snooze_page
from gpusteward.analyzer.api.compat import config as compat_config
from gpusteward.analyzer.api.compat import results as compat_results
from gpusteward.analyzer.api.dependencies import ApiDependencies
from gpusteward.analyzer.api.http.middleware import RequestMiddleware, WebAccess
from gpusteward.analyzer.api.http.problems import GPU_OOUR_TAG, PROBLEM_TYPE, Problem, add_handlers
from gpusteward.analyzer.api.http.responses import DocumentedRoute
from gpusteward.analyzer.api.ui import routes as ui
from gpusteward.analyzer.api.v1 import session
from gpusteward.analyzer.api.v1.costs import overview, reports
from gpusteward.analyzer.api.v1.gpus import gpus, nodes, processes
from gpusteward.analyzer.api.v1.health import deliveries, events, health, sources
from gpusteward.analyzer.api.v1.reclaim import actions, lendable, plan, reclaim, replay
from gpusteward.analyzer.api.v1.workloads import (
    allocations,
    namespaces,
    snoozes,
    workload_detail,
    workload_history,
    workloads,
)

_RESOURCES = (
    docs,  # first: whoever reaches the port may ask for these, and every route before takes time
    *(compat_config, compat_results, metrics_page),
    *(session, overview),
    *(workloads, workload_detail, processes, allocations, gpus, namespaces),
    *(plan, actions, reclaim, snooze_page, give_back_page),
    *(nodes, workload_history, snoozes),
    *(replay, lendable),
    *(reports, deliveries, sources, health, events),
    ui,
)
ABOUT = """Who holds each GPU, how well it is used, and the reasons for each verdict.

The endpoints without a prefix are those of gpu-oour with its JSON. All others are under /api/v1. Responses describe the
last finished cycle; only the series and processes of a workload are read from the engine at the time of the request.

Local requests may read without a token; other requests, and all writes where tokens are configured, need
Authorization: Bearer TOKEN, an identity from a configured reverse proxy, or the session of a browser, which
POST /api/v1/session opens. Viewers may be limited to namespaces: then
everything else seems not to exist. Errors are problem objects (RFC 9457), in Chinese if Accept-Language prefers it.
Those of gpu-oour's endpoints have FastAPI's detail, and the text is in the field message."""

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def _no_lifespan(_: FastAPI) -> AsyncIterator[None]:
    yield


class Api(FastAPI):
    """FastAPI with problem objects as the errors in its OpenAPI document."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            routes = [each.describe() if isinstance(each, DocumentedRoute) else each for each in self.routes]
            document = get_openapi(title=self.title, version=self.version, description=ABOUT, routes=routes)
            self.openapi_schema = _describe_errors(document)
        return self.openapi_schema


def build_api(dependencies: ApiDependencies, *, lifespan: Lifespan = _no_lifespan) -> FastAPI:
    app = _make_app(lifespan)
    app.state.dependencies = dependencies
    if dependencies.settings.current.server.mcp:
        questions.add_questions(app)
    access = WebAccess(dependencies.web, dependencies.limits.passwords)
    app.add_middleware(RequestMiddleware, web=access, shares=dependencies.shares)
    add_handlers(app)
    return app


def describe_api() -> dict[str, Any]:
    """The OpenAPI document; needs no components."""
    return _make_app(_no_lifespan).openapi()


def _make_app(lifespan: Lifespan) -> FastAPI:
    app = Api(
        title="gpusteward",
        version=__version__,
        description=ABOUT,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,  # `docs.py` shows it, rendered once
        redirect_slashes=False,
    )
    for resource in _RESOURCES:
        app.router.routes += resource.router.routes  # `include_router` would keep a second copy of each
    return app


def _describe_errors(document: dict[str, Any]) -> dict[str, Any]:
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas["Problem"] = TypeAdapter(Problem).json_schema()
    components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    problem = {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for operation in (each for item in document["paths"].values() for each in item.values()):
        if GPU_OOUR_TAG not in operation["tags"]:  # those have what FastAPI writes
            operation["responses"].pop("422", None)
        operation["responses"]["4XX"] = {"description": "The request is wrong.", "content": problem}
        operation["responses"]["5XX"] = {"description": "The analyzer, engine or ledger failed.", "content": problem}
        operation["security"] = [{}, {"bearer": []}]
    return document
