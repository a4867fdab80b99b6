"""The part of the /metrics page that a result determines. The analyzer's own health is appended at each scrape."""

import threading
import time
from collections.abc import Iterator
from itertools import islice

from gpusteward.analyzer.metrics.allocation_samples import render_allocations
from gpusteward.analyzer.metrics.cost_metrics import cost_families
from gpusteward.analyzer.metrics.result_metrics import FamilyPart, result_families
from gpusteward.analyzer.results import Result
from gpusteward.core.exposition import OPENMETRICS_TYPE, render_lines, render_openmetrics_header, render_text_header
from gpusteward.core.metrics import Metric
from gpusteward.http_server.gzip_body import Body

BATCH_SAMPLES = 4000
MOST_PLAIN_ROWS = 16_000
"""Pages of up to this many rows are also kept uncompressed: 20 MB, and decompressing takes longer than sending."""

SCRAPER_TIMEOUT_SECONDS = 600.0  # a format that was not scraped for so long is rendered at its next scrape only


class ResultPages:
    """The page of the last result by content type. Formats that were scraped lately are rendered with each result."""

    def __init__(self) -> None:
        self._pages: dict[str, Body] = {}
        self._scraped_at: dict[str, float] = {}
        self._lock = threading.Lock()

    def render(self, result: Result) -> None:
        """Replace the pages; until then those of the previous result are served."""
        since = time.monotonic() - SCRAPER_TIMEOUT_SECONDS
        formats = [content_type for content_type, at in tuple(self._scraped_at.items()) if at >= since]
        self._pages = {content_type: render_result(result, content_type) for content_type in formats}

    def find(self, content_type: str) -> Body | None:
        """The page for a scrape; None: `make` it."""
        self._scraped_at[content_type] = time.monotonic()
        return self._pages.get(content_type)

    def make(self, result: Result, content_type: str) -> Body:
        """Takes a moment. The page is kept unless another result is published meanwhile."""
        pages = self._pages
        with self._lock:
            if content_type not in pages:
                pages[content_type] = render_result(result, content_type)
        return pages[content_type]


def render_result(result: Result, content_type: str) -> Body:
    """The page in one format, compressed batch by batch: the whole text is never in memory where it is not kept."""
    return Body(_render_pieces(result, content_type), keep_plain=len(result.verdicts) <= MOST_PLAIN_ROWS)


def _render_pieces(result: Result, content_type: str) -> Iterator[bytes]:
    render_header = render_openmetrics_header if content_type == OPENMETRICS_TYPE else render_text_header
    last: Metric | None = None
    for metric, lines in _render_families(result):
        if lines:
            yield (lines if metric is last else render_header(metric) + lines).encode()
            last = metric


def _render_families(result: Result) -> Iterator[tuple[Metric, str]]:
    """The lines of one metric after the other, in batches."""
    yield from render_allocations(result)
    parts: dict[Metric, list[FamilyPart]] = {}  # those of several clusters belong together
    for part in (*result_families(result), *cost_families(result)):
        parts.setdefault(part.metric, []).append(part)
    for metric, own in parts.items():
        for part in own:
            remaining = iter(part.samples)
            while batch := list(islice(remaining, BATCH_SAMPLES)):
                yield metric, render_lines(metric, batch)
