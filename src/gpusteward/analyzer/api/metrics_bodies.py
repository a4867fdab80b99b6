"""A result -> the page at /metrics, in both formats. They share every block but the headers of families."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from gpusteward.analyzer.api.http.gzip_blocks import MOST_PLAIN_ROWS, Block, Body, pack
from gpusteward.analyzer.metrics.allocation_samples import render_holders
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
    """By content type; what follows at each scrape is not on it yet."""
    bodies = {form: Body() for form in _HEADERS}
    maker = _Maker(keep_plain=len(result.verdicts) <= MOST_PLAIN_ROWS)
    for metric, samples in maker.pack_families(result):
        for form, render_header in _HEADERS.items():
            bodies[form].add(maker.pack(render_header(metric)))
            bodies[form].extend(samples)
    return bodies


class _Maker:
    """Packs texts, and keeps them beside it where the page is small."""

    def __init__(self, *, keep_plain: bool) -> None:
        self._keep_plain = keep_plain

    def pack(self, text: str) -> Block:
        return pack(text.encode(), keep_plain=self._keep_plain)

    def pack_families(self, result: Result) -> Iterator[tuple[Metric, Body]]:
        """Those without samples leave no trace."""
        yield from ((metric, samples) for metric, samples in self._pack_holders(result).items() if samples.size)
        for family in result_families(result):
            if family.samples:
                samples = Body()
                samples.add(self.pack(render_lines(family.metric, family.samples)))
                yield family.metric, samples

    def _pack_holders(self, result: Result) -> Mapping[Metric, Body]:
        """By series; they come some rows at a time, and are packed before the next ones are written."""
        packed: defaultdict[Metric, Body] = defaultdict(Body)
        for metric, lines in render_holders(result):
            packed[metric].add(self.pack(lines))
        return packed
