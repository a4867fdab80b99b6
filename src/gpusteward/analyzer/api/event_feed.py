"""Server-sent events: a bounded number of listeners, each with a short queue."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress

import msgspec

from gpusteward.analyzer.api.http.responses import format_utc
from gpusteward.analyzer.judge.workloads import WorkloadKey
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.tables import ACTIVITIES
from gpusteward.core.verdicts import Activity

MOST_LISTENERS = 64
QUEUE_LENGTH = 16
"""A listener that is this many events behind loses the oldest: an event only announces that there is something new."""
HEARTBEAT_SECONDS = 15.0
MOST_LISTED = 50
_RETRY = b"retry: 5000\n\n"
_HEARTBEAT = b": still here\n\n"

Event = bytes
Queue = asyncio.Queue[Event | None]


class EventFeed:
    """Belongs to one event loop; only `send_from_thread` may be called from another thread."""

    def __init__(self, *, heartbeat_seconds: float = HEARTBEAT_SECONDS) -> None:
        self._heartbeat_seconds = heartbeat_seconds
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

    def send_from_thread(self, event: Event) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._send, event)

    def close(self) -> None:
        """End every stream, because the program ends."""
        self._is_closed = True
        self._send(None)

    def _send(self, event: Event | None) -> None:
        for queue in self._queues:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(event)

    async def listen(self, first: Event) -> AsyncIterator[bytes]:
        """Events as they are sent, until the feed closes or the client disconnects."""
        queue: Queue = asyncio.Queue(QUEUE_LENGTH)
        self._queues.add(queue)
        try:
            yield _RETRY + first
            while not self._is_closed or not queue.empty():
                event = await self._next(queue)
                if event is None:
                    return
                yield event
        finally:
            self._queues.discard(queue)

    async def _next(self, queue: Queue) -> Event | None:
        try:
            async with asyncio.timeout(self._heartbeat_seconds):
                return await queue.get()
        except TimeoutError:
            return _HEARTBEAT


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


def describe_changes(before: Result | None, now: Result) -> Event | None:
    """Which workloads changed their activity, appeared or disappeared; None when none did."""
    if before is None:
        return None
    old, new = _activities(before), _activities(now)
    changed = [key for key, activity in new.items() if old.get(key, activity) != activity]
    appeared = [key for key in new if key not in old]
    disappeared = [key for key in old if key not in new]
    if not (changed or appeared or disappeared):
        return None
    listed = [
        {"workload": key.path, "cluster": key.cluster, "before": ACTIVITIES[old[key]], "now": ACTIVITIES[new[key]]}
        for key in changed[:MOST_LISTED]
    ]
    counts = {"changed": len(changed), "came": len(appeared), "went": len(disappeared)}
    return render_event("verdicts", {"tag": now.tag, **counts, "workloads": listed}, number=now.tag)


def _activities(result: Result) -> dict[WorkloadKey, int]:
    return dict(zip(result.workloads.keys, result.workloads.activity.tolist(), strict=True))
