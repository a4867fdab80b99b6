"""Publishes a result: clients can read it, listeners receive events, and its /metrics page is rendered."""

from gpusteward.analyzer.api.event_feed import Event, EventFeed, describe_cycle, find_changes
from gpusteward.analyzer.api.result_store import PublishedResult, ResultStore
from gpusteward.analyzer.api.v1.workloads.workloads import DEFAULT_SORT, view_workloads
from gpusteward.analyzer.results import Result
from gpusteward.core.namespaces import VisibleNamespaces


class ResultPublisher:
    """The `publish` stage of the pipeline. Used by the thread that runs cycles."""

    def __init__(self, store: ResultStore, events: EventFeed) -> None:
        self._store = store
        self._events = events

    def publish(self, result: Result) -> None:
        """The page at /metrics comes last: until then the previous one is served, as to a scrape a moment earlier, and
        the previous result is not kept in memory while a page is rendered."""
        changes = find_changes(self._store.published.result if self._store.published else None, result)
        self._store.publish(prepare(result))
        self._events.send_from_thread(describe_cycle(result), limit=self._describe_limited_cycle)
        if event := changes.render():
            self._events.send_from_thread(event, limit=lambda visible: changes.limit_to(visible).render())
        self._store.pages.render(result)

    def _describe_limited_cycle(self, visible: VisibleNamespaces) -> Event:
        published = self._store.published
        return describe_cycle(published.limit_to(visible).result) if published else b""


def prepare(result: Result) -> PublishedResult:
    """A result whose most requested list is sorted before the first client can request it."""
    published = PublishedResult(result)
    view_workloads(published).listing.select(DEFAULT_SORT, {})
    return published
