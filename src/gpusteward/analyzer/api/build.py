"""The application with all its routes."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from gpusteward import __version__
from gpusteward.analyzer.api import docs, metrics_page
from gpusteward.analyzer.api.compat import config as seed_config
from gpusteward.analyzer.api.compat import results as seed_results
from gpusteward.analyzer.api.dependencies import ApiDependencies
from gpusteward.analyzer.api.http.middleware import RequestMiddleware
from gpusteward.analyzer.api.http.problems import PROBLEM_TYPE, Problem, add_handlers
from gpusteward.analyzer.api.v1 import (
    allocations,
    deliveries,
    events,
    gpus,
    health,
    namespaces,
    processes,
    reports,
    series,
    sources,
    workloads,
)

NOUNS = (
    *(seed_config, seed_results, metrics_page),
    *(workloads, series, processes, allocations, gpus, namespaces, reports, deliveries, sources, health, events),
    docs,
)
ABOUT = """Who holds each GPU, how well it is used, and why it is judged so.

The endpoints without a prefix are gpu-oour's, in its shapes. Everything new is under /api/v1. Every answer is about
the last finished cycle; nothing here waits for Prometheus, but for the series and the processes of a workload.

Reading is open on this machine; elsewhere, and for every change, send Authorization: Bearer TOKEN. Errors are problem
objects (RFC 9457)."""

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def _live_quietly(_: FastAPI) -> AsyncIterator[None]:
    yield


class Api(FastAPI):
    """FastAPI, with our problem object for every error in the document instead of its own shapes."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            document = get_openapi(title=self.title, version=self.version, description=ABOUT, routes=self.routes)
            self.openapi_schema = _describe_errors(document)
        return self.openapi_schema


def build_api(dependencies: ApiDependencies, *, lifespan: Lifespan = _live_quietly) -> FastAPI:
    app = Api(
        title="gpusteward",
        version=__version__,
        description=ABOUT,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        redirect_slashes=False,
    )
    app.state.dependencies = dependencies
    app.add_middleware(RequestMiddleware)
    add_handlers(app)
    for noun in NOUNS:
        app.include_router(noun.router)
    return app


def _describe_errors(document: dict[str, Any]) -> dict[str, Any]:
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = TypeAdapter(Problem).json_schema()
    components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    problem = {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for operation in _operations(document):
        operation["responses"].pop("422", None)
        operation["responses"]["4XX"] = {"description": "What is wrong with the request.", "content": problem}
        operation["responses"]["5XX"] = {"description": "What is wrong here.", "content": problem}
        operation["security"] = [{}, {"bearer": []}]
    return document


def _operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for item in document["paths"].values():
        yield from item.values()
