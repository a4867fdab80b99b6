"""/metrics: what a cycle found is rendered once with the cycle, how the analyzer fares is added at each scrape."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from fastapi import APIRouter, Depends, Request, Response

from gpusteward.analyzer.api.access import may_read
from gpusteward.analyzer.api.packing import Body, pack
from gpusteward.analyzer.api.sending import send_body
from gpusteward.analyzer.api.serving import Serving, ServingHere
from gpusteward.analyzer.exports import health_families, result_families
from gpusteward.analyzer.results import Result
from gpusteward.core import analyzer_metrics as metrics
from gpusteward.core.exposition import (
    OPENMETRICS_TYPE,
    TEXT_TYPE,
    Family,
    Samples,
    render_labels,
    render_lines,
    render_openmetrics_header,
    render_page,
    render_text_header,
)
from gpusteward.core.negotiation import accepts_gzip, choose_format

router = APIRouter(dependencies=[Depends(may_read)], tags=["gpu-oour"])

PAGE = "metrics"
SAMPLES_A_BLOCK = 4000
"""About 1 MB of text: so much is unpacked at a time."""


class MetricsPage:
    """A rendered page in both formats; they share all but the headers of families."""

    def __init__(self, families: Iterable[Family] = ()) -> None:
        self.bodies: Mapping[str, Body] = {TEXT_TYPE: Body(), OPENMETRICS_TYPE: Body()}
        for family in families:
            if family.samples:
                self._add(family)

    def _add(self, family: Family) -> None:
        self.bodies[TEXT_TYPE].add(pack(render_text_header(family.metric).encode()))
        self.bodies[OPENMETRICS_TYPE].add(pack(render_openmetrics_header(family.metric).encode()))
        for samples in _cut(family.samples):
            block = pack(render_lines(family.metric, samples).encode())
            for body in self.bodies.values():
                body.add(block)


def _cut(samples: Samples) -> Iterator[Samples]:
    for begin in range(0, len(samples), SAMPLES_A_BLOCK):
        yield samples[begin : begin + SAMPLES_A_BLOCK]


def render_result(result: Result) -> MetricsPage:
    return MetricsPage(result_families(result))


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics_page(request: Request, serving: ServingHere) -> Response:
    """gpu-oour's metrics and the analyzer's own health, as text or OpenMetrics by `Accept`, gzip by `Accept-Encoding`.

    What could not be measured has no sample. A GPU has one status at a time.
    """
    chosen = choose_format(request.headers.get("accept", ""))
    form = TEXT_TYPE if chosen == TEXT_TYPE else OPENMETRICS_TYPE  # its older version reads the same
    body = _page_of(serving).bodies[form]
    is_packed = accepts_gzip(request.headers.get("accept-encoding", ""))
    return send_body(body, gzip=is_packed, media_type=chosen, tail=_render_health(serving, form))


def _page_of(serving: Serving) -> MetricsPage:
    posted = serving.board.posted
    return MetricsPage() if posted is None else posted.once(PAGE, render_result)


def _render_health(serving: Serving, form: str) -> bytes:
    posted = serving.board.posted
    tally = serving.tally
    page = render_page(
        [
            *health_families(
                posted.result if posted else None,
                serving.account,
                replace(tally, failures=tally.failures.copy()),
                queries=serving.count_queries(),
            ),
            _reloads(serving.count_reloads()),
        ]
    )
    return page.openmetrics + b"# EOF\n" if form == OPENMETRICS_TYPE else page.text


def _reloads(counts: Mapping[str, int]) -> Family:
    return Family(
        metrics.SETTINGS_RELOADS, [(render_labels((("result", name),)), count) for name, count in counts.items()]
    )
