"""/livez, /healthz, /readyz: probes of a kubelet. They need no token: they describe the process, not the cluster."""

from http import HTTPStatus

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse

from gpusteward.analyzer.api.dependencies import Service

router = APIRouter(tags=["health"])


@router.get("/livez", summary="Liveness", response_class=PlainTextResponse)
@router.get("/healthz", summary="Liveness", response_class=PlainTextResponse)
async def show_liveness(dependencies: Service) -> PlainTextResponse:
    """200 unless only a restart helps: the thread that runs cycles has ended or hangs. A source that is down does not
    matter."""
    return _respond(dependencies.cycles.defect)


@router.get("/readyz", summary="Readiness", response_class=PlainTextResponse)
async def show_readiness(dependencies: Service) -> PlainTextResponse:
    """200 when the first cycle has ended, even if it failed: reports, the last result and the reason of the failure are
    served while a source is down."""
    has_ended = dependencies.cycles.stats.last_ended_at is not None
    return _respond(dependencies.cycles.defect or ("" if has_ended else "the first cycle has not ended yet"))


def _respond(problem: str) -> PlainTextResponse:
    status = HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK
    return PlainTextResponse(f"{problem or 'ok'}\n", status, {"Cache-Control": "no-store"})
