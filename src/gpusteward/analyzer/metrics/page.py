"""The part of the /metrics page that a result determines, in both formats; they share all blocks but the headers."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache

from gpusteward.analyzer.gzip_blocks import MOST_PLAIN_ROWS, Block, Body, pack
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

_HEADERS = {TEXT_TYPE: render_text_header, OPENMETRICS_TYPE: render_openmetrics_header}


def render_result(result: Result) -> Mapping[str, Body]:
    """By content type. The analyzer's own health is appended at each scrape."""
    bodies = {content_type: Body() for content_type in _HEADERS}
    packer = _Packer(keep_plain=len(result.verdicts) <= MOST_PLAIN_ROWS)
    for metric, samples in packer.pack_families(result):
        for content_type, body in bodies.items():
            body.add(_pack_header(metric, content_type))
            body.extend(samples)
    return bodies


@cache
def _pack_header(metric: Metric, content_type: str) -> Block:
    """The same in every page."""
    return pack(_HEADERS[content_type](metric).encode(), keep_plain=True)


class _Packer:
    """Compresses text, and also keeps it uncompressed where the page is small."""

    def __init__(self, *, keep_plain: bool) -> None:
        self._keep_plain = keep_plain

    def pack(self, text: str) -> Block:
        return pack(text.encode(), keep_plain=self._keep_plain)

    def pack_families(self, result: Result) -> Iterator[tuple[Metric, Body]]:
        """Families without samples are left out."""
        families = (*result_families(result), *cost_families(result))  # first: they need more memory than they keep
        yield from ((metric, samples) for metric, samples in self._pack_allocations(result).items() if samples.size)
        for family in families:
            if family.samples:
                samples = Body()
                samples.add(self.pack(render_lines(family.metric, family.samples)))
                yield family.metric, samples

    def _pack_allocations(self, result: Result) -> Mapping[Metric, Body]:
        """By metric. Rows are rendered in batches, and each batch is compressed before the next one is rendered."""
        packed: defaultdict[Metric, Body] = defaultdict(Body)
        for metric, lines in render_allocations(result):
            packed[metric].add(self.pack(lines))
        return packed
