"""/api/v1/events, which streams, and /series, which queries the engine."""

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse

import pytest

from gpusteward.analyzer.api import event_feed
from gpusteward.analyzer.api.event_feed import EventFeed, describe_cycle, find_changes
from gpusteward.analyzer.api.v1.health.events import HealthEvents
from gpusteward.analyzer.sources.usage_source import Chart
from gpusteward.core.usages import AllocationKey
from tests.analyzer.api.sample_results import small_result
from tests.analyzer.api.server import Api, FakeSource, make_result, running_api
from tests.analyzer.usage_tables import AT, allocation, resting, table_of, working

SERIES = "/api/v1/workloads/Job/vision/trainer/series"


@contextmanager
def listening(api: Api) -> Iterator[HTTPResponse]:
    with urllib.request.urlopen(api.url + "/api/v1/events", timeout=10) as stream:
        yield stream


def next_event(stream: HTTPResponse) -> dict[str, str]:
    """The lines up to the next empty one, by field; a comment has an empty name."""
    fields = {}
    while line := stream.readline().decode().rstrip("\n"):
        name, _, value = line.partition(": ")
        fields[name.rstrip(":")] = value
    return fields


def next_named(stream: HTTPResponse) -> dict[str, str]:
    while "event" not in (event := next_event(stream)):
        pass
    return event


def test_a_listener_receives_the_last_cycle_then_every_new_one():
    with running_api(small_result()) as api, listening(api) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert json.loads(next_named(stream)["data"])["number"] == 1
        api.dependencies.events.send_from_thread(describe_cycle(small_result(number=2, at=AT + 300)))
        event = next_named(stream)
    assert (event["event"], json.loads(event["data"])["number"]) == ("cycle", 2)
    assert event["id"] == json.loads(event["data"])["tag"]


def test_a_listener_learns_that_the_health_of_the_data_changed():
    with running_api(small_result()) as api, listening(api) as stream:
        next_named(stream)
        watch = HealthEvents(api.dependencies)
        watch.check()
        api.cycles.stats.last_error = "the engine does not respond"
        watch.check()
        watch.check()
        api.cycles.stats.last_error = ""
        watch.check()
        events = [next_named(stream) for _ in range(2)]
    assert [each["event"] for each in events] == ["health", "health"]
    assert [json.loads(each["data"])["status"] for each in events] == ["degraded", "healthy"]


def test_changes_name_the_workloads_whose_activity_changed():
    before = make_result(table_of(working(), working(), allocations=[allocation(0), allocation(1)]))
    now = make_result(table_of(resting(), resting(), allocations=[allocation(0), allocation(1)], at=AT + 300), number=2)
    data = json.loads(find_changes(before, now).render().split(b"data: ")[1])
    change = {"workload": "Deployment/team/server", "cluster": "", "before": "active", "now": "idle"}
    assert (data["changed"], data["workloads"]) == (1, [change])


def test_there_is_no_event_where_nothing_changed():
    assert find_changes(None, small_result()).render() == b""
    assert find_changes(small_result(), small_result(number=2)).render() == b""


def test_a_stream_without_events_has_heartbeats():
    with running_api(small_result(), events=EventFeed(heartbeat_seconds=0.05)) as api, listening(api) as stream:
        next_named(stream)
        assert next_event(stream) == {"": "still here"}


def test_a_stream_ends_after_a_while_so_that_access_is_checked_again():
    feed = EventFeed(heartbeat_seconds=0.05, longest_seconds=0.2)
    with running_api(small_result(), events=feed) as api, listening(api) as stream:
        assert b"still here" in stream.read()  # to its end


def test_the_number_of_listeners_is_limited_and_drops_when_one_disconnects(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(event_feed, "MOST_LISTENERS", 1)
    feed = EventFeed(heartbeat_seconds=0.05)
    with running_api(small_result(), events=feed) as api:
        with listening(api) as stream:
            next_named(stream)
            response = api.get("/api/v1/events")
            assert (response.status, response.json["type"]) == (503, "urn:gpusteward:problem:too-many-listeners")
        gone = threading.Event()
        for _ in range(400):
            if not feed.listeners or gone.wait(0.01):
                break
        assert feed.listeners == 0


def test_series_are_those_of_the_gpus_of_the_workload():
    with running_api(small_result()) as api:
        response = api.get(f"{SERIES}?limit=1&offset=1").json
    assert response["total"] == 2
    (course,) = response["courses"]
    assert course["allocation"] == "vision/trainer-0/main/GPU-b"
    assert course["lines"] == {"core_ratio": [[AT - 60, 0.5], [AT, 0.75]]}


def test_a_failing_engine_costs_only_the_series():
    with running_api(small_result(), source=FakeSource(series_failure="the engine failed: HTTP 503")) as api:
        response = api.get(SERIES)
        assert (response.status, response.json["type"]) == (503, "urn:gpusteward:problem:engine-failed")
        assert api.get("/results").status == 200


def test_more_concurrent_requests_for_series_than_allowed_are_refused():
    begun, over = threading.Semaphore(0), threading.Event()

    class SlowSource(FakeSource):
        def read_series(self, allocation: AllocationKey, at: float, *, seconds: float) -> Chart:
            begun.release()
            over.wait(20)
            return Chart(allocation)

    with running_api(small_result(), source=SlowSource()) as api:
        threads = [threading.Thread(target=api.get, args=(f"{SERIES}?limit=1",)) for _ in range(2)]
        for thread in threads:
            thread.start()
        assert begun.acquire(timeout=10)
        assert begun.acquire(timeout=10)
        response = api.get(SERIES)
        assert (response.status, response.json["type"]) == (503, "urn:gpusteward:problem:busy")
        assert api.get("/api/v1/workloads").status == 200
        over.set()
        for thread in threads:
            thread.join(10)
        assert api.get(SERIES).status == 200
