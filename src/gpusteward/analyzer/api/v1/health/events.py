"""/api/v1/events: server-sent events instead of polling."""

from fastapi import APIRouter, Depends
from fastapi.responses import StreamingResponse

from gpusteward.analyzer.api.authorization import may_read
from gpusteward.analyzer.api.dependencies import Dependencies
from gpusteward.analyzer.api.event_feed import describe_cycle
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.messages.errors import api_errors

router = APIRouter(prefix="/api/v1", dependencies=[Depends(may_read)], tags=["events"])


@router.get(
    "/events",
    summary="Events as they happen",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def stream_events(dependencies: Dependencies) -> StreamingResponse:
    """`cycle`: a cycle has finished, with its counts. `verdicts`: workloads changed their activity, appeared or
    disappeared. `health`: the status of /health changed, for example because the source cannot be read.

    The first event is the last cycle. A comment every 15 seconds keeps the connection open. Events that a slow client
    missed are not repeated: an event only says that there is something new to read.
    """
    if not dependencies.events.accepts_listeners:
        headers = {"Retry-After": "30"}
        raise ProblemError(503, "too-many-listeners", api_errors.TOO_MANY_LISTENERS, headers=headers)
    published = dependencies.results.published
    first = describe_cycle(published.result) if published else b""
    return StreamingResponse(
        dependencies.events.listen(first, dependencies.visible),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )
