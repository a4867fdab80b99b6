"""/metrics: the part of the last result was rendered when it was published; the analyzer's health is added here."""

from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool

from gpusteward.analyzer.api.authorization import may_read_all
from gpusteward.analyzer.api.dependencies import ApiDependencies, Dependencies
from gpusteward.analyzer.api.http.problems import GPU_OOUR_TAG
from gpusteward.analyzer.api.http.responses import send_body
from gpusteward.analyzer.api.result_store import ResultStore
from gpusteward.analyzer.data_health import DataHealth
from gpusteward.analyzer.metrics import health_metrics
from gpusteward.core.exposition import OPENMETRICS_TYPE, TEXT_TYPE, render_page
from gpusteward.http_server.gzip_body import Body
from gpusteward.http_server.negotiation import accepts_gzip, choose_format

router = APIRouter(dependencies=[Depends(may_read_all)], tags=[GPU_OOUR_TAG])


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def show_metrics(request: Request, dependencies: Dependencies) -> Response:
    """gpu-oour's metrics and the analyzer's own health, as text or OpenMetrics by `Accept`, gzip by `Accept-Encoding`.

    What could not be measured has no sample. A GPU has one status at a time. A result that is older than
    three intervals and the window is left out; the analyzer's own metrics stay. Of several analyzers on one ledger
    only the leader shows the result: a sum over all of them counts each GPU once.
    """
    chosen = choose_format(request.headers.get("accept", ""))
    content_type = TEXT_TYPE if chosen == TEXT_TYPE else OPENMETRICS_TYPE  # version 0.0.1 has the same body
    health = dependencies.assess_data()
    is_shown = dependencies.leadership.is_leader and not health.is_too_old
    body = await _find_page(dependencies.results, content_type) if is_shown else Body()
    is_gzip = accepts_gzip(request.headers.get("accept-encoding", ""))
    return send_body(body, gzip=is_gzip, media_type=chosen, tail=_render_health(dependencies, health, content_type))


async def _find_page(results: ResultStore, content_type: str) -> Body:
    body, published = results.pages.find(content_type), results.published
    if body is not None or published is None:
        return body or Body()
    return await run_in_threadpool(results.pages.make, published.result, content_type)


def _render_health(dependencies: ApiDependencies, health: DataHealth, content_type: str) -> bytes:
    published = dependencies.results.published
    page = render_page(
        [
            *health_metrics.cycle_families(published.result if published else None, dependencies.stats),
            *health_metrics.data_families(health),
            *health_metrics.model_families(dependencies.model_calls),
            *health_metrics.count_families(
                queries=dependencies.source.request_counts,
                reloads=dependencies.settings.count_reloads(),
                refusals=dependencies.refusals.counts,
                is_leader=dependencies.leadership.is_leader,
            ),
            *health_metrics.lending_families(dependencies.ledger.lendable),
            *health_metrics.ledger_families(dependencies.describe_ledger()),
            *health_metrics.delivery_families(dependencies.describe_deliveries()),
            *health_metrics.reclaim_families(dependencies.reclaim, dependencies.policies),
        ]
    )
    return page.openmetrics + b"# EOF\n" if content_type == OPENMETRICS_TYPE else page.text
