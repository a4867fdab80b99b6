"""Server-sent events: a bounded number of listeners, each with a short queue."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from fastapi.concurrency import run_in_threadpool

from gpusteward.analyzer.api.http.responses import format_utc
from gpusteward.analyzer.results import Result, tag_result
from gpusteward.analyzer.tables import ACTIVITIES
from gpusteward.core.namespaces import VisibleNamespaces
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.core.verdicts import Activity

MOST_LISTENERS = 128
"""Of all clients; `http/concurrency_limits.py` has the share of one."""
QUEUE_LENGTH = 16
"""A listener that is this many events behind loses the oldest: an event only announces that there is something new."""
HEARTBEAT_SECONDS = 15.0
LONGEST_SECONDS = 3600.0
"""Then a stream ends. The client connects again, which checks its access again."""
MOST_LISTED = 50
_RETRY = b"retry: 5000\n\n"
_HEARTBEAT = b": still here\n\n"

Event = bytes
Limit = Callable[[VisibleNamespaces], Event]


class _SentEvent(NamedTuple):
    """`limit`: the event for a listener who sees some namespaces only; empty: there is nothing to announce."""

    event: Event
    limit: Limit


Queue = asyncio.Queue[_SentEvent | None]


class EventFeed:
    """Belongs to one event loop; only `send_from_thread` may be called from another thread."""

    def __init__(
        self, *, heartbeat_seconds: float = HEARTBEAT_SECONDS, longest_seconds: float = LONGEST_SECONDS
    ) -> None:
        self._heartbeat_seconds = heartbeat_seconds
        self._longest_seconds = longest_seconds
        self._queues: set[Queue] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    def open(self) -> None:
        """Use the running event loop."""
        self._loop = asyncio.get_running_loop()

    @property
    def listeners(self) -> int:
        return len(self._queues)

    @property
    def accepts_listeners(self) -> bool:
        return len(self._queues) < MOST_LISTENERS and not self._is_closed

    def send_from_thread(self, event: Event, *, limit: Limit = lambda _: b"") -> None:
        """`limit` must not keep a result in memory: a slow listener keeps its queue."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._send, _SentEvent(event, limit))

    def close(self) -> None:
        """End every stream, because the program ends."""
        self._is_closed = True
        self._send(None)

    def _send(self, event: _SentEvent | None) -> None:
        for queue in self._queues:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(event)

    async def listen(self, first: Event, *, visible: VisibleNamespaces | None) -> AsyncIterator[bytes]:
        """Events as they are sent, until the feed closes or the client disconnects. `visible`: about these only."""
        queue: Queue = asyncio.Queue(QUEUE_LENGTH)
        ends_at = time.monotonic() + self._longest_seconds
        self._queues.add(queue)
        try:
            yield _RETRY + first
            while time.monotonic() < ends_at and (not self._is_closed or not queue.empty()):
                sent = await self._next(queue)
                if sent is None:
                    return
                event = sent.event if visible is None else await run_in_threadpool(sent.limit, visible)
                if event:
                    yield event
        finally:
            self._queues.discard(queue)

    async def _next(self, queue: Queue) -> _SentEvent | None:
        try:
            async with asyncio.timeout(self._heartbeat_seconds):
                return await queue.get()
        except TimeoutError:
            return _SentEvent(_HEARTBEAT, lambda _: _HEARTBEAT)


def render_event(name: str, data: Mapping[str, object], *, number: str) -> Event:
    """One event in the format text/event-stream; encoded JSON contains no line ends."""
    return b"".join([f"id: {number}\nevent: {name}\ndata: ".encode(), msgspec.json.encode(data), b"\n\n"])


def describe_cycle(result: Result) -> Event:
    verdicts, workloads = result.verdicts, result.workloads
    idle, unknown = ACTIVITIES.index(Activity.IDLE), ACTIVITIES.index(Activity.UNKNOWN)
    data = {
        "tag": result.tag,
        "number": result.number,
        "at": format_utc(result.at),
        "seconds": round(result.seconds, 3),
        "allocations": len(verdicts),
        "idle_allocations": int((verdicts.activity == idle).sum()),
        "unknown_allocations": int((verdicts.activity == unknown).sum()),
        "workloads": len(workloads),
        "idle_workloads": int((workloads.activity == idle).sum()),
    }
    return render_event("cycle", data, number=result.tag)


def describe_health(status: str, *, at: float) -> Event:
    """For every listener: /health says the same without a token."""
    return render_event("health", {"status": status, "at": format_utc(at)}, number=f"health-{at:.0f}")


class ActivityChange(NamedTuple):
    """A workload whose activity changed."""

    key: WorkloadKey
    before: Activity
    now: Activity


@dataclass(frozen=True, slots=True)
class Changes:
    """What is different in a new result."""

    tag: str
    changed: Sequence[ActivityChange]
    appeared: Sequence[WorkloadKey]
    disappeared: Sequence[WorkloadKey]

    def limit_to(self, visible: VisibleNamespaces) -> "Changes":
        return Changes(
            tag_result(self.tag, visible),
            [each for each in self.changed if visible.includes(each.key.cluster, each.key.namespace)],
            [key for key in self.appeared if visible.includes(key.cluster, key.namespace)],
            [key for key in self.disappeared if visible.includes(key.cluster, key.namespace)],
        )

    def render(self) -> Event:
        """Empty when nothing changed."""
        if not (self.changed or self.appeared or self.disappeared):
            return b""
        listed = [
            {"workload": each.key.path, "cluster": each.key.cluster, "before": each.before, "now": each.now}
            for each in self.changed[:MOST_LISTED]
        ]
        counts = {"changed": len(self.changed), "came": len(self.appeared), "went": len(self.disappeared)}
        return render_event("verdicts", {"tag": self.tag, **counts, "workloads": listed}, number=self.tag)


def find_changes(before: Result | None, now: Result) -> Changes:
    """Which workloads changed their activity, appeared or disappeared; none without a result before."""
    if before is None:
        return Changes(now.tag, [], [], [])
    old, new = _activities(before), _activities(now)
    return Changes(
        now.tag,
        [
            ActivityChange(key, ACTIVITIES[old[key]], ACTIVITIES[activity])
            for key, activity in new.items()
            if old.get(key, activity) != activity
        ],
        [key for key in new if key not in old],
        [key for key in old if key not in new],
    )


def _activities(result: Result) -> dict[WorkloadKey, int]:
    return dict(zip(result.workloads.keys, result.workloads.activity.tolist(), strict=True))
