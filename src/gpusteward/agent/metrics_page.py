"""The rendered page: what a scrape is answered with, how old it is, and what of it is still true.

The page is made once a cycle. At a scrape only the age is added: it grows although nothing else moves, so that a hung
driver is seen. A page older than three intervals keeps only what does not age.
"""

import struct
import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpusteward.core import metrics
from gpusteward.core.exposition import Family, Page, render_labels, render_page

STALE_AFTER_INTERVALS = 3
EXPECTED_SECONDS = 120.0  # a scraper that came within this time will come again: its page is packed with the cycle
_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_GZIP_LEVEL = 1  # half the CPU of the default level for a page a tenth larger


class _Packed:
    """A gzip member that is done but for its end, which is another one at each scrape.

    A second member for the end would be simpler, but curl and others read no more than the first.
    """

    def __init__(self, body: bytes) -> None:
        packer = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
        self._begun = packer.compress(body) + packer.flush(zlib.Z_SYNC_FLUSH)
        self._checksum, self._size = zlib.crc32(body), len(body)

    def finish(self, tail: bytes) -> bytes:
        """With the tail as a last, stored block (RFC 1951 3.2.4), then checksum and length of all (RFC 1952 2.3.1)."""
        stored = struct.pack("<BHH", 1, len(tail), len(tail) ^ 0xFFFF) + tail
        return self._begun + stored + struct.pack("<II", zlib.crc32(tail, self._checksum), self._size + len(tail))


@dataclass(slots=True)
class _Published:
    taken_at: float  # monotonic seconds
    fresh: Page
    lasting: Page
    packed: dict[tuple[bool, bool], _Packed] = field(default_factory=dict)


class MetricsPage:
    """The last page, safe to read from any thread while the next one is made."""

    def __init__(self, *, node: str, interval_seconds: float, clock: Callable[[], float]) -> None:
        self._node = node
        self._stale_after = interval_seconds * STALE_AFTER_INTERVALS
        self._clock = clock
        self._lock = threading.Lock()
        self._published: _Published | None = None
        self._asked_at: dict[bool, float] = {}  # packed, by whether as OpenMetrics

    def publish(self, families: Sequence[Family], *, taken_at: float) -> None:
        """Put a new page in place of the last one. `taken_at` is on the clock given at the start."""
        lasting = render_page(family for family in families if family.metric.outlives_snapshot)
        published = _Published(taken_at, render_page(families), lasting)
        for openmetrics, asked_at in tuple(self._asked_at.items()):
            if taken_at - asked_at < EXPECTED_SECONDS:
                self._packed(published, published.fresh, (openmetrics, False))
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
        """The page for one scrape: the body made with the cycle, the age added now."""
        published = self._published
        end = b"# EOF\n" if openmetrics else b""
        if published is None:
            return _Packed(b"").finish(end) if gzip else end
        age = max(0.0, self._clock() - published.taken_at)
        tail = self._render_age(age, openmetrics=openmetrics) + end
        stale = age > self._stale_after
        page = published.lasting if stale else published.fresh
        if not gzip:
            return (page.openmetrics if openmetrics else page.text) + tail
        self._asked_at[openmetrics] = self._clock()
        return self._packed(published, page, (openmetrics, stale)).finish(tail)

    def _render_age(self, age: float, *, openmetrics: bool) -> bytes:
        labels = render_labels((("node", self._node),))
        page = render_page([Family(metrics.SNAPSHOT_AGE, [(labels, round(age, 3))])])
        return page.openmetrics if openmetrics else page.text

    def _packed(self, published: _Published, page: Page, key: tuple[bool, bool]) -> _Packed:
        """Packed once and kept, on demand or because a scraper is expected: a page nobody asks for costs nothing."""
        with self._lock:
            packed = published.packed.get(key)
            if packed is None:
                packed = published.packed[key] = _Packed(page.openmetrics if key[0] else page.text)
            return packed
