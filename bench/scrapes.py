"""CPU and time of a scrape."""

import http.client
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from bench.readings import read_cpu_seconds
from bench.sides import Side

SETTLE_SECONDS = 0.02
"""After the last byte, so that the end of the serving thread is included."""

MODES = {
    "identity": {"Accept-Encoding": "identity"},
    "gzip": {"Accept-Encoding": "gzip"},
    "new connection": {"Accept-Encoding": "identity", "Connection": "close"},
}


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds for one scrape."""

    cpu: float  # of the exporter
    wall: float  # as the client saw it


class Scraper:
    """Scrapes one exporter; keeps the connection if the exporter does."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._connection = http.client.HTTPConnection("127.0.0.1", side.port, timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def scrape(self, mode: str) -> bytes:
        self._connection.request("GET", "/metrics", headers=MODES[mode])
        response = self._connection.getresponse()
        body = response.read()
        if response.status != http.client.OK:
            raise RuntimeError(f"{self._side.name} responded to a scrape with {response.status}")
        return body

    def measure(self, mode: str, count: int, *, idle_share: float = 0.0) -> Cost:
        """The mean of `count` scrapes in a row, without what the side would have used anyway meanwhile."""
        cpu, began = read_cpu_seconds(self._side.pid), time.perf_counter()
        for _ in range(count):
            self.scrape(mode)
        elapsed = time.perf_counter() - began
        time.sleep(SETTLE_SECONDS)
        used = read_cpu_seconds(self._side.pid) - cpu - idle_share * (time.perf_counter() - began)
        return Cost(used / count * 1000, elapsed / count * 1000)
