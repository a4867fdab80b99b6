"""/mcp: the questions of assistants, where `server.mcp` is on.

Each asks the API of this program as its caller, through all middleware: so tokens, roles, namespaces and limits hold.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
from fastapi import Depends, FastAPI, Request, Response
from starlette.types import Receive, Scope, Send

from gpusteward.analyzer.api.authorization import check_site, may_read
from gpusteward.analyzer.api.dependencies import Client, Service
from gpusteward.analyzer.api.http.middleware import CERTIFICATE_STATE
from gpusteward.core.errors import ConfigurationError
from gpusteward.questions.answers import QuestionError, Row

_OF_BODY = ("content-", "accept", "if-", "transfer-", "mcp-", "last-event-id")
"""Headers about the request to /mcp itself. All others go on, so that nobody is taken for somebody else."""


def add_questions(app: FastAPI) -> None:
    """Raises ConfigurationError if `mcp` is not installed."""
    try:
        from gpusteward.questions.server import Questions, open_http
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"server.mcp is on, but {error.name} is not installed: pip install 'gpusteward[mcp]', or set it to false"
        ) from error

    def find_questions(request: Request) -> Questions:
        url = request.app.state.dependencies.settings.current.server.public_url
        return Questions(lambda path, query: _ask_api(request, path, query), url or str(request.base_url))

    manager, lifespan = open_http(find_questions), app.router.lifespan_context

    @asynccontextmanager
    async def run(app: FastAPI) -> AsyncIterator[None]:
        async with lifespan(app), manager.run():
            yield

    class Handled(Response):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await manager.handle_request(scope, receive, send)

    async def answer(request: Request, dependencies: Service, client: Client) -> Response:
        check_site(request, client, dependencies)  # no page of another site may use what a browser sends by itself
        return Handled()

    app.router.lifespan_context = run
    app.add_api_route("/mcp", answer, methods=["POST"], dependencies=[Depends(may_read)], include_in_schema=False)


async def _ask_api(request: Request, path: str, query: Sequence[tuple[str, str]]) -> Row:
    """Raises QuestionError."""
    import httpx2  # `mcp` needs it too; nothing else of a request does

    state = {name: value for name, value in request.scope["state"].items() if name == CERTIFICATE_STATE}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await request.app({**scope, "state": state}, receive, send)

    headers = [each for each in request.headers.items() if not each[0].startswith(_OF_BODY)]
    peer = (request.client.host, request.client.port) if request.client else ("", 0)  # never the default, loopback
    asked = httpx2.Request("GET", str(request.base_url).rstrip("/") + path, params=list(query), headers=headers)
    response = await httpx2.ASGITransport(app, client=peer).handle_async_request(asked)
    found: Row = msgspec.json.decode(await response.aread())
    if response.status_code != 200:
        raise QuestionError(f"the analyzer responded {response.status_code}: {found.get('detail', 'no reason given')}")
    return found
