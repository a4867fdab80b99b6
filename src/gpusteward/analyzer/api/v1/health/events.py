"""/api/v1/events: server-sent events instead of polling; one of them says that the health of the data changed."""

from fastapi import APIRouter, Depends
from fastapi.responses import StreamingResponse

from gpusteward.analyzer.api.authorization import may_read
from gpusteward.analyzer.api.dependencies import ApiDependencies, Dependencies
from gpusteward.analyzer.api.event_feed import describe_cycle, describe_health
from gpusteward.analyzer.api.http.problems import ProblemError
from gpusteward.analyzer.data_health import Status
from gpusteward.messages.errors import api_errors


class HealthEvents:
    """Used on the event loop only."""

    def __init__(self, dependencies: ApiDependencies) -> None:
        self._dependencies = dependencies
        self._status: Status | None = None  # None: not known yet

    def check(self) -> None:
        """Send an event if the status is not that of the last call."""
        status = self._dependencies.assess_data().status
        if self._status not in (None, status):
            event = describe_health(status, at=self._dependencies.clock())
            self._dependencies.events.send_from_thread(event, limit=lambda _: event)
        self._status = status


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
        dependencies.events.listen(first, visible=dependencies.visible),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )
