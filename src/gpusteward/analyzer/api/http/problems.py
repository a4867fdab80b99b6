"""The one JSON error shape: a problem object (RFC 9457). Nothing a client sent is repeated in it but names."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import Field
from starlette.exceptions import HTTPException

PROBLEM_TYPE = "application/problem+json"
_PREFIX = "urn:gpusteward:problem:"


@dataclass(frozen=True)
class Problem:
    """Why a request was not done."""

    type: Annotated[str, Field(description="What kind of problem: urn:gpusteward:problem:NAME.")]
    title: Annotated[str, Field(description="The kind in words.")]
    status: Annotated[int, Field(description="The HTTP status.")]
    detail: Annotated[str, Field(description="What to do about it.")]


class ProblemError(Exception):
    """Ends a request with a problem object."""

    def __init__(self, status: int, kind: str, detail: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.problem = Problem(_PREFIX + kind, HTTPStatus(status).phrase, status, detail)
        self.headers = dict(headers or {})


def not_ready() -> ProblemError:
    """Before the first result."""
    detail = "no cycle has finished yet; /api/v1/health tells how they fare"
    return ProblemError(503, "not-ready", detail, headers={"Retry-After": "5"})


def answer_problem(error: ProblemError) -> Response:
    body = msgspec.json.encode(error.problem)
    return Response(body, error.problem.status, {"Cache-Control": "no-store", **error.headers}, PROBLEM_TYPE)


def add_handlers(app: FastAPI) -> None:
    app.add_exception_handler(ProblemError, _on_problem)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_invalid)


async def _on_problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)
    return answer_problem(error)


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = HTTPStatus(error.status_code).name.lower().replace("_", "-")
    details = {404: "there is nothing here; /docs lists what there is", 405: f"{request.method} is not offered here"}
    detail = details.get(error.status_code, str(error.detail))
    headers = {"Allow": _find_methods(request)} if error.status_code == 405 else error.headers
    return answer_problem(ProblemError(error.status_code, kind, detail, headers=headers))


def _find_methods(request: Request) -> str:
    """Of all routes of this path: Starlette names those of the first one only."""
    for path, item in request.app.openapi()["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path), request.url.path):
            return ", ".join(sorted(method.upper() for method in item))
    return "GET"


async def _on_invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return answer_problem(ProblemError(422, "invalid-parameter", describe_invalid(error.errors())))


def describe_invalid(errors: Sequence[Mapping[str, object]]) -> str:
    """`limit: Input should be less than or equal to 1000`, one after another; never the value that was sent."""
    return "; ".join(dict.fromkeys(_describe(each) for each in errors))


def _describe(error: Mapping[str, object]) -> str:
    place = error["loc"]
    assert isinstance(place, tuple)
    name = ".".join(str(part) for part in place[1:]) or str(place[0])
    return f"{name}: {error['msg']}"
