"""What a scrape costs the side that answers it."""

import http.client
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from bench.readings import read_cpu_seconds
from bench.sides import Side

SETTLE_SECONDS = 0.02
"""After the last byte: a thread that served it has its end still to come, and that is part of the cost."""

MODES = {
    "identity": {"Accept-Encoding": "identity"},
    "gzip": {"Accept-Encoding": "gzip"},
    "new connection": {"Accept-Encoding": "identity", "Connection": "close"},
}


@dataclass(frozen=True, slots=True)
class Cost:
    """Milliseconds for one scrape."""

    cpu: float  # of the side that answered
    wall: float  # as the client saw it


class Scraper:
    """Asks one side for its page; keeps the connection where the side does."""

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
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != http.client.OK:
            raise RuntimeError(f"{self._side.name} answered a scrape with {answer.status}")
        return body

    def measure(self, mode: str, count: int, *, idle_share: float = 0.0) -> Cost:
        """The mean of `count` scrapes in a row, without what the side would have used anyway meanwhile."""
        cpu, began = read_cpu_seconds(self._side.pid), time.perf_counter()
        for _ in range(count):
            self.scrape(mode)
        answered = time.perf_counter() - began
        time.sleep(SETTLE_SECONDS)
        used = read_cpu_seconds(self._side.pid) - cpu - idle_share * (time.perf_counter() - began)
        return Cost(used / count * 1000, answered / count * 1000)
