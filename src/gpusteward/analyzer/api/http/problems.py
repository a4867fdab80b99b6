"""The one JSON error shape: a problem object (RFC 9457), in the language of the request.

Nothing that a client sent is repeated in it, except parameter names. The endpoints of gpu-oour, which was written with
FastAPI, have its `detail` in errors that FastAPI itself finds: clients read `detail[0]["loc"]`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse
from fastapi.routing import APIRoute
from pydantic import Field
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.routing import Match

from gpusteward.core.errors import GpustewardError
from gpusteward.core.messages import Language, Message
from gpusteward.http_server.negotiation import parse_accept
from gpusteward.messages.errors import api_errors

PROBLEM_TYPE = "application/problem+json"
GPU_OOUR_TAG = "gpu-oour"
"""Of the routes of gpu-oour's endpoints."""
_PREFIX = "urn:gpusteward:problem:"


@dataclass(frozen=True)
class Problem:
    """Why a request failed."""

    type: Annotated[str, Field(description="The kind of problem: urn:gpusteward:problem:NAME.")]
    title: Annotated[str, Field(description="The HTTP status in words.")]
    status: Annotated[int, Field(description="The HTTP status.")]
    detail: Annotated[str, Field(description="What is wrong and what helps, in Chinese if Accept-Language prefers it.")]


class ProblemError(GpustewardError):
    """Ends a request with a problem object."""

    def __init__(
        self,
        status: int,
        kind: str,
        message: Message | str,
        *,
        headers: Mapping[str, str] | None = None,
        **fields: object,
    ) -> None:
        """`fields`: of the message."""
        super().__init__(message, **fields)
        self.status = status
        self.kind = kind
        self.headers = dict(headers or {})

    @classmethod
    def from_error(
        cls, status: int, kind: str, error: GpustewardError, *, headers: Mapping[str, str] | None = None
    ) -> "ProblemError":
        """A problem with the text of another error."""
        problem = cls(status, kind, str(error), headers=headers)
        problem.message, problem.fields = error.message, error.fields
        return problem

    def describe(self, language: Language) -> Problem:
        title = api_errors.TITLES.get(self.status, HTTPStatus(self.status).phrase)
        title = title.text(language) if isinstance(title, Message) else title
        return Problem(_PREFIX + self.kind, title, self.status, self.text(language))


def not_ready() -> ProblemError:
    """Before the first result."""
    return ProblemError(503, "not-ready", api_errors.NOT_READY, headers={"Retry-After": "5"})


def find_language(headers: Headers) -> Language:
    """Chinese where `Accept-Language` prefers it to English, else English."""
    weights: dict[str, float] = {}  # in the order of the header
    for item in parse_accept(headers.get("accept-language", "")):
        name = item.name.partition("-")[0]
        weights[name] = max(item.weight, weights.get(name, 0.0))
    chinese, english = weights.get("zh", 0.0), weights.get("en", 0.0)
    is_first = next((name for name in weights if name in ("zh", "en")), "") == "zh"
    return "zh" if chinese > english or (chinese == english > 0 and is_first) else "en"


def send_problem(error: ProblemError, headers: Headers) -> Response:
    """`headers`: of the request."""
    body = msgspec.json.encode(error.describe(find_language(headers)))
    return Response(body, error.status, {"Cache-Control": "no-store", **error.headers}, PROBLEM_TYPE)


def add_handlers(app: FastAPI) -> None:
    app.add_exception_handler(ProblemError, _on_problem)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_invalid)


async def _on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)
    return send_problem(error, request.headers)


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404 and (path := _find_without_slash(request)):
        return RedirectResponse(path, 307)
    messages = {404: api_errors.UNKNOWN_PATH, 405: api_errors.METHOD_NOT_ALLOWED, 413: api_errors.BODY_TOO_LARGE}
    message = messages.get(error.status_code, str(error.detail))
    kind = HTTPStatus(error.status_code).name.lower().replace("_", "-")
    headers = {**(error.headers or {}), **(_find_methods(request) if error.status_code == 405 else {})}
    problem = ProblemError(error.status_code, kind, message, headers=headers, method=request.method)
    if _is_of_gpu_oour(request):
        return _send_as_fastapi(problem, error.detail, request.headers)
    return send_problem(problem, request.headers)


def _is_of_gpu_oour(request: Request) -> bool:
    return any(
        isinstance(route, APIRoute) and GPU_OOUR_TAG in route.tags and route.path == request.url.path
        for route in request.app.routes
    )


def _send_as_fastapi(error: ProblemError, detail: object, headers: Headers) -> Response:
    """A problem object with the `detail` that FastAPI writes; our own text is `message`."""
    problem = error.describe(find_language(headers))
    body = {**asdict(problem), "detail": detail, "message": problem.detail}
    media_type = PROBLEM_TYPE if isinstance(detail, str) else "application/json"  # RFC 9457 wants a text
    return JSONResponse(
        jsonable_encoder(body), error.status, {"Cache-Control": "no-store", **error.headers}, media_type
    )


def _find_without_slash(request: Request) -> str:
    """The address of a path without its last slash, if there is such a route; gpu-oour redirects to it, too.

    Relative, as every address here: the analyzer may be behind a proxy that ends TLS and adds a prefix.
    """
    path = request.url.path.removesuffix("/")
    scope = {**request.scope, "path": path}
    if path == request.url.path or all(route.matches(scope)[0] is Match.NONE for route in request.app.routes):
        return ""
    found = f"../{path.rpartition('/')[2]}"
    return f"{found}?{request.url.query}" if request.url.query else found


def _find_methods(request: Request) -> Mapping[str, str]:
    """Of all routes of this path in the document: Starlette names only those of the first one."""
    for path, item in request.app.openapi()["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path), request.url.path):
            return {"Allow": ", ".join(sorted(method.upper() for method in item))}
    return {}


async def _on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problem = ProblemError(422, "invalid-parameter", describe_invalid(error.errors(), find_language(request.headers)))
    if _is_of_gpu_oour(request):
        return _send_as_fastapi(problem, error.errors(), request.headers)
    return send_problem(problem, request.headers)


def describe_invalid(errors: Sequence[Mapping[str, Any]], language: Language) -> str:
    """`limit: must be at most 1000`, joined by semicolons; never the value that was sent."""
    return "; ".join(dict.fromkeys(_describe(each, language) for each in errors))


def _describe(error: Mapping[str, Any], language: Language) -> str:
    location = error["loc"]
    name = ".".join(str(part) for part in location[1:]) or str(location[0])
    message = api_errors.INVALID_VALUES.get(error["type"], api_errors.INVALID_VALUE)
    fields = {"text": error["msg"], **error.get("ctx", {})}
    if language == "zh" and "expected" in fields:  # pydantic joins the words: 'a', 'b' or 'c'
        fields["expected"] = fields["expected"].replace(", ", "、").replace(" or ", "、")
    reason = message.text(language, **fields)
    return api_errors.INVALID_PARAMETER.text(language, name=name, reason=reason)
