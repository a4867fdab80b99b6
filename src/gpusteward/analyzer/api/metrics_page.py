"""/metrics: what a cycle found is rendered once with the cycle, how the analyzer fares is added at each scrape."""

from collections.abc import Mapping
from dataclasses import replace

from fastapi import APIRouter, Depends, Request, Response

from gpusteward.analyzer.api.dependencies import ApiDependencies, Dependencies
from gpusteward.analyzer.api.http.access import may_read
from gpusteward.analyzer.api.http.gzip_blocks import Body
from gpusteward.analyzer.api.http.responses import send_body
from gpusteward.analyzer.metrics.delivery_metrics import delivery_families, ledger_families
from gpusteward.analyzer.metrics.result_metrics import health_families
from gpusteward.core import analyzer_metrics as metrics
from gpusteward.core.exposition import OPENMETRICS_TYPE, TEXT_TYPE, Family, render_labels, render_page
from gpusteward.core.negotiation import accepts_gzip, choose_format

router = APIRouter(dependencies=[Depends(may_read)], tags=["gpu-oour"])


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics_page(request: Request, dependencies: Dependencies) -> Response:
    """gpu-oour's metrics and the analyzer's own health, as text or OpenMetrics by `Accept`, gzip by `Accept-Encoding`.

    What could not be measured has no sample. A GPU has one status at a time.
    """
    chosen = choose_format(request.headers.get("accept", ""))
    form = TEXT_TYPE if chosen == TEXT_TYPE else OPENMETRICS_TYPE  # its older version reads the same
    body = dependencies.results.page.get(form) or Body()
    is_packed = accepts_gzip(request.headers.get("accept-encoding", ""))
    return send_body(body, gzip=is_packed, media_type=chosen, tail=_render_health(dependencies, form))


def _render_health(dependencies: ApiDependencies, form: str) -> bytes:
    published = dependencies.results.published
    tally = dependencies.model_calls
    page = render_page(
        [
            *health_families(
                published.result if published else None,
                dependencies.cycles.stats,
                replace(tally, failures=tally.failures.copy()),
                queries=dependencies.source.asked,
            ),
            _reloads(dependencies.settings.count_reloads()),
            *ledger_families(dependencies.describe_ledger()),
            *delivery_families(dependencies.describe_deliveries()),
        ]
    )
    return page.openmetrics + b"# EOF\n" if form == OPENMETRICS_TYPE else page.text


def _reloads(counts: Mapping[str, int]) -> Family:
    return Family(
        metrics.SETTINGS_RELOADS, [(render_labels((("result", name),)), count) for name, count in counts.items()]
    )
