"""Publishes a result: clients can read it, listeners receive events, and its /metrics page is rendered."""

from gpusteward.analyzer.api.event_feed import Event, EventFeed, describe_changes, describe_cycle
from gpusteward.analyzer.api.result_store import PublishedResult, ResultStore
from gpusteward.analyzer.api.v1.workloads import DEFAULT_SORT, view_workloads
from gpusteward.analyzer.metrics.page import render_result
from gpusteward.analyzer.results import Result


class ResultPublisher:
    """The `publish` stage of the pipeline. Used by the thread that runs cycles."""

    def __init__(self, store: ResultStore, events: EventFeed) -> None:
        self._store = store
        self._events = events

    def publish(self, result: Result) -> None:
        """The page at /metrics comes last: until then the previous one is served, as to a scrape a moment earlier, and
        the previous result is not kept in memory while a page is rendered."""
        events = self._describe(result)
        self._store.publish(prepare(result))
        for event in events:
            self._events.send_from_thread(event)
        self._store.page = render_result(result)

    def _describe(self, result: Result) -> list[Event]:
        previous = self._store.published
        changes = describe_changes(previous.result if previous else None, result)
        return [describe_cycle(result), *([] if changes is None else [changes])]


def prepare(result: Result) -> PublishedResult:
    """A result whose most requested list is sorted before the first client can request it."""
    published = PublishedResult(result)
    view_workloads(published).listing.select(DEFAULT_SORT, {})
    return published
