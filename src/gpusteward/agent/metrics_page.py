"""The rendered /metrics page.

The page is rendered once per cycle. A scrape only adds the snapshot age, which keeps growing while a driver call hangs,
so that the hang is visible. A page older than three intervals keeps only the families that stay true (build
information, identities, counters of the agent itself).
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpusteward.core import metrics
from gpusteward.core.exposition import Family, PageRenderer, RenderedPage, render_labels, render_page
from gpusteward.http_server.gzip_body import Body

STALE_AFTER_INTERVALS = 3
SCRAPER_TIMEOUT_SECONDS = 120.0  # a format scraped within this time is compressed with each cycle in advance


@dataclass(slots=True)
class _RenderedCycle:
    taken_at: float  # monotonic seconds
    fresh: RenderedPage
    static: RenderedPage
    compressed: dict[tuple[bool, bool], Body] = field(default_factory=dict)


class MetricsPage:
    """The last rendered page; can be read from any thread while the next one is rendered."""

    def __init__(self, *, node: str, interval_seconds: float, clock: Callable[[], float]) -> None:
        self._node = node
        self._stale_after = interval_seconds * STALE_AFTER_INTERVALS
        self._clock = clock
        self.compressions = 0  # pages compressed so far
        self._lock = threading.Lock()
        self._renderer = PageRenderer()
        self._published: _RenderedCycle | None = None
        self._gzip_requested_at: dict[bool, float] = {}  # last request with gzip; key: OpenMetrics or text

    def publish(self, families: Sequence[Family], *, taken_at: float) -> None:
        """Replace the page. `taken_at` is on the clock given to the constructor."""
        fresh = self._renderer.render(families)
        static = RenderedPage([(metric, lines) for metric, lines in fresh.families if metric.outlives_snapshot])
        published = _RenderedCycle(taken_at, fresh, static)
        for openmetrics, requested_at in tuple(self._gzip_requested_at.items()):
            if taken_at - requested_at < SCRAPER_TIMEOUT_SECONDS:
                self._compress(published, published.fresh, (openmetrics, False))
        self._published = published

    @property
    def age_seconds(self) -> float | None:
        """None before the first page."""
        published = self._published
        return None if published is None else max(0.0, self._clock() - published.taken_at)

    @property
    def is_stale(self) -> bool:
        age = self.age_seconds
        return age is None or age > self._stale_after

    def render(self, *, openmetrics: bool, gzip: bool) -> bytes:
        """The page for one scrape: the body of the last cycle and the current age."""
        published = self._published
        end = b"# EOF\n" if openmetrics else b""
        if published is None:
            return b"".join(Body().gzip(end)) if gzip else end
        age = max(0.0, self._clock() - published.taken_at)
        labels = render_labels((("node", self._node),))
        own = render_page([Family(metrics.SNAPSHOT_AGE, [(labels, round(age, 3))])])
        tail = (own.openmetrics if openmetrics else own.text) + end
        stale = age > self._stale_after
        page = published.static if stale else published.fresh
        if not gzip:
            return b"".join((*_parts(page, openmetrics=openmetrics), tail))
        self._gzip_requested_at[openmetrics] = self._clock()
        return b"".join(self._compress(published, page, (openmetrics, stale)).gzip(tail))

    def _compress(self, published: _RenderedCycle, page: RenderedPage, key: tuple[bool, bool]) -> Body:
        """Compress once per cycle and format: on request, or in advance for a format that was scraped recently."""
        with self._lock:
            compressed = published.compressed.get(key)
            if compressed is None:
                self.compressions += 1
                compressed = published.compressed[key] = Body(_parts(page, openmetrics=key[0]), keep_plain=False)
            return compressed


def _parts(page: RenderedPage, *, openmetrics: bool) -> list[bytes]:
    return page.openmetrics_parts if openmetrics else page.text_parts
