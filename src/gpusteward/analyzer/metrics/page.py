"""The part of the /metrics page that a result determines, in both formats; they share all blocks but the headers."""

from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from itertools import chain, islice

from gpusteward.analyzer.gzip_blocks import Block, Body, Packer, pack
from gpusteward.analyzer.metrics.allocation_samples import render_allocations
from gpusteward.analyzer.metrics.cost_metrics import cost_families
from gpusteward.analyzer.metrics.result_metrics import result_families
from gpusteward.analyzer.results import Result
from gpusteward.core.exposition import (
    OPENMETRICS_TYPE,
    TEXT_TYPE,
    render_lines,
    render_openmetrics_header,
    render_text_header,
)
from gpusteward.core.metrics import Metric

BATCH_SAMPLES = 4000
_HEADERS = {TEXT_TYPE: render_text_header, OPENMETRICS_TYPE: render_openmetrics_header}


def render_result(result: Result) -> Mapping[str, Body]:
    """By content type. The analyzer's own health is appended at each scrape."""
    bodies = {content_type: Body() for content_type in _HEADERS}
    for metric, samples in _pack_families(result).items():
        if samples.size:
            for content_type, body in bodies.items():
                body.add(_pack_header(metric, content_type))
                body.extend(samples)
    return bodies


@cache
def _pack_header(metric: Metric, content_type: str) -> Block:
    """The same in every page."""
    return pack(_HEADERS[content_type](metric).encode(), keep_plain=True)


def _pack_families(result: Result) -> Mapping[Metric, Body]:
    """By metric. Samples are rendered in batches, and each batch is compressed before the next one is rendered."""
    packed, packer = defaultdict[Metric, Body](Body), Packer(rows=len(result.verdicts))
    for metric, lines in render_allocations(result):
        packed[metric].add(packer.pack(lines.encode()))
    for metric, samples in chain(result_families(result), cost_families(result)):
        remaining = iter(samples)
        while batch := list(islice(remaining, BATCH_SAMPLES)):
            packed[metric].add(packer.pack(render_lines(metric, batch).encode()))
    return packed
