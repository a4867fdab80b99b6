"""A viewer who is limited to namespaces learns nothing about any other: every endpoint, every format, every error."""

import json
import re
import urllib.request
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpusteward.analyzer.api.build import build_api
from gpusteward.analyzer.api.result_store import MOST_LIMITED, PublishedResult
from gpusteward.analyzer.ledger_access import LedgerAccess
from gpusteward.analyzer.notify.outbox.records import Delivery
from gpusteward.analyzer.pipeline import CycleStats
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.live_readings import PodProcesses, RunningProcess
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.analyzer.sources.usage_source import Chart
from gpusteward.analyzer.tables import NodeModel
from gpusteward.core.errors import SourceError
from gpusteward.core.namespaces import NamespacePattern, VisibleNamespaces
from gpusteward.core.node.containers import Container, Workload
from gpusteward.core.usages import AllocationKey, Measure
from gpusteward.messages import unknown_reasons
from tests.analyzer.api.fake_reclaim import FakeReclaim
from tests.analyzer.api.sample_results import H100, OPINION
from tests.analyzer.api.server import (
    Api,
    FakeDeliveries,
    FakeSource,
    Response,
    make_dependencies,
    make_result,
    running_api,
)
from tests.analyzer.usage_tables import AT, DAY, GIB, resting, signal, table_of, working

SECRET = "foreign"
"""Part of every name that the limited viewer must not see."""
OWN_JOB, FOREIGN_JOB = Workload("Job", "own", "own-job"), Workload("Job", "foreign-ns", "foreign-job")
RULES = [
    {"users": ["lead"], "role": "viewer", "namespaces": ["ow?"]},
    {"groups": ["platform"], "role": "admin"},
]
PERIOD = "&".join(
    f"{name}={datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"
    for name, at in (("since", AT - DAY), ("until", AT + DAY))
)
LEAD, ADMIN = {"X-Forwarded-User": "lead"}, {"X-Forwarded-User": "root", "X-Forwarded-Groups": "platform"}


def make_settings() -> Settings:
    return Settings.model_validate(
        {
            "auth": {"proxy": {"addresses": ["127.0.0.1"]}, "rules": RULES},
            "prometheus": {"query_condition": 'namespace="foreign-ns"'},
            "prices": {"per_gpu_hour": {"*": 2.0}},
        }
    )


def hold(owner: Workload, gpu: str, *, node: str = "n1") -> AllocationKey:
    container = Container(
        owner.namespace,
        f"{owner.name}-0",
        f"uid-{owner.name}",
        "main",
        owner,
        (),
        AT - DAY,
        user=f"{owner.namespace}-user",
    )
    return AllocationKey(gpu, "", container, node, "0", H100, "time-sliced" if gpu == "GPU-shared" else "exclusive")


def two_namespaces(*, number: int = 1, at: float = AT, is_idle: bool = True) -> Result:
    """Each namespace holds a GPU of its own, and both share one. The foreign one also has a node of its own."""
    whole = signal(Measure.MEMORY_TOTAL, 80 * GIB) | signal(Measure.POWER_LIMIT, 700)
    row = resting(4.0) if is_idle else working(0.8, 1.0)
    held = [
        hold(FOREIGN_JOB, "GPU-shared"),
        hold(OWN_JOB, "GPU-shared"),
        hold(OWN_JOB, "GPU-own"),
        hold(FOREIGN_JOB, "GPU-foreign", node="foreign-node"),
    ]
    table = table_of(*[row | whole] * 4, allocations=held, coverage=[1, 1, 1, 1], at=at)
    table = replace(table, fleet={NodeModel("n1", H100): 2, NodeModel("foreign-node", H100): 8})
    opinions = {row: replace(OPINION, reason=f"about {held[row].container.pod}") for row in range(4)}
    return make_result(table, settings=make_settings(), number=number, opinions=opinions)


class TalkativeSource(FakeSource):
    """Returns the processes of every pod, whichever were asked for."""

    def read_processes(self, pods: Collection[PodKey], at: float) -> PodProcesses:
        everybody = {*pods, PodKey("own", "own-job-0", ""), PodKey("foreign-ns", "foreign-job-0", "")}
        processes = [RunningProcess(pod, "main", "n1", "0", "GPU-shared", "", "", 1, pod.name) for pod in everybody]
        return PodProcesses(processes, frozenset(everybody))


class TalkativeDeliveries(FakeDeliveries):
    def describe(self) -> dict[str, Any]:
        return {"targets": ["foreign-channel"], "fault": "foreign-channel failed"}

    def read_deliveries(self, state: str | None, limit: int) -> list[Delivery]:
        return [Delivery(1, "foreign-ns", "notice", "foreign-channel", 0, 1, 0, "dead", "foreign-host refused it")]


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LedgerAccess]:
    """A real one, with an hour of both namespaces."""
    directory = tmp_path_factory.mktemp("foreign-ledger")
    access = LedgerAccess(LedgerSettings(directory=Path(directory)), lambda: PriceSettings(per_gpu_hour={"*": 2.0}))
    for minute in range(0, 61, 5):
        access.record(two_namespaces(number=1 + minute, at=AT - 3600 + 60 * minute))
    yield access
    access.close()


@contextmanager
def serving(ledger: LedgerAccess) -> Iterator[Api]:
    stats = CycleStats(finished=1, failed=1, last_error="query of foreign-ns failed", last_ended_at=AT + 1)
    components = {
        "settings": make_settings(),
        "source": TalkativeSource(described={"failures": {"q": 'namespace="foreign-ns"'}}),
        "deliveries": TalkativeDeliveries(),
        "ledger": ledger,
        "reclaim": FakeReclaim([OWN_JOB, FOREIGN_JOB]),
    }
    with running_api(two_namespaces(), **components) as api:
        api.cycles.stats = stats
        yield api


@pytest.fixture(scope="module")
def api(ledger: LedgerAccess) -> Iterator[Api]:
    with serving(ledger) as running:
        yield running


VALUES = {
    "kind": ["Job"],
    "namespace": ["own", "foreign-ns"],
    "name": ["own-job", "foreign-job"],
    "node": ["n1", "foreign-node"],
    "number": ["1"],
    "file": ["index.html"],
    "action_id": ["a1", "a2"],
}
"""Of path parameters. A new one needs values here that exist in the foreign namespace."""
QUERIES = {
    "/api/v1/reports": [
        f"{PERIOD}&by={by}&format={kind}"
        for by in ("cluster", "namespace", "workload", "model", "node", "user", "team", "day")
        for kind in ("json", "csv", "html", "focus")
        if kind == "json" or by in ("namespace", "day")
    ],
    "/api/v1/reports/groups": [f"{PERIOD}&by={by}" for by in ("namespace", "workload", "node", "user", "team")],
    "/api/v1/workloads/ended": ["name=own-job", "name=foreign-job", "name=foreign-job-0"],
    "/api/v1/workloads": ["", "namespace=foreign-ns", "q=foreign", "node=foreign-node"],
    "/api/v1/gpus": ["", "namespace=foreign-ns", "node=foreign-node"],
    "/api/v1/overview": ["", "days=1&language=zh"],
}
BODIES = {"/replay": {}, "/session": {"token": "x" * 20}, "/snooze": {"hours": 1, "reason": "mine"}}
"""Of POST requests that need one, by the end of the path."""
STREAMS = ("/api/v1/events",)


def list_routes() -> Iterator[Any]:
    """Every route of the application, also those that are not in its document."""
    yield from build_api(make_dependencies()).routes


def list_requests() -> Iterator[tuple[str, str]]:
    """Every method and path of the application, with every value of its parameters."""
    for route in list_routes():
        if route.path not in STREAMS:
            for method in sorted(route.methods):
                for path in _fill(route.path):
                    yield from ((method, f"{path}?{query}") for query in QUERIES.get(route.path, [""]))


def _fill(path: str) -> Iterator[str]:
    names = re.findall(r"{(\w+)}", path)
    filled = [path]
    for name in names:
        filled = [each.replace(f"{{{name}}}", value) for each in filled for value in VALUES[name]]
    yield from filled


REQUESTS = sorted(set(list_requests()))


def test_every_documented_path_is_among_the_requests():
    documented = build_api(make_dependencies()).openapi()["paths"]
    assert set(documented) <= {route.path for route in list_routes()}


def ask(api: Api, method: str, path: str, who: dict[str, str]) -> Response:
    body = next((each for end, each in BODIES.items() if path.partition("?")[0].endswith(end)), None)
    return api.get(path, method=method, body=body if method == "POST" else None, **who)


def shows_secret(path: str, response: Response) -> bool:
    text = response.body.decode() + str(response.headers)
    asked = re.split("[/?&=]", path)  # what the client wrote itself is no news
    for word in sorted((each for each in asked if SECRET in each), key=len, reverse=True):
        text = text.replace(f'"namespaces":["{word}"]', "")
    return SECRET in text.lower()


@pytest.mark.parametrize(("method", "path"), REQUESTS)
def test_never_shows_a_name_of_a_foreign_namespace(api: Api, method: str, path: str):
    response = ask(api, method, path, LEAD)
    refused = (422, 500) if (method, path) == ("POST", "/api/v1/session?") else (401, 422, 500)
    assert response.status not in refused, "the request must reach the endpoint"
    assert not shows_secret(path, response)


@pytest.mark.parametrize(
    "path",
    [
        *("/results", "/results/low", "/results/stats", "/metrics", "/config"),
        *("/api/v1/workloads", "/api/v1/allocations", "/api/v1/gpus", "/api/v1/namespaces", "/api/v1/health"),
        *("/api/v1/overview", "/api/v1/gpu-map", "/api/v1/workloads/table", "/api/v1/nodes"),
        *("/api/v1/nodes/n1", "/api/v1/settings", "/api/v1/workloads/Job/foreign-ns/foreign-job/history"),
        *("/api/v1/plan", "/api/v1/actions", "/api/v1/actions/a2"),
        *("/api/v1/sources", "/api/v1/deliveries", "/api/v1/workloads/ended?name=foreign-job"),
        *("/api/v1/workloads/Job/foreign-ns/foreign-job", "/api/v1/nodes/n1/processes"),
        *(f"/api/v1/reports?{PERIOD}&format={kind}" for kind in ("json", "csv", "html", "focus")),
        f"/api/v1/reports/groups?{PERIOD}",
    ],
)
def test_an_admin_sees_all_of_it(api: Api, path: str):
    response = ask(api, "GET", path, ADMIN)
    assert response.status == 200
    assert SECRET in response.body.decode()


@pytest.mark.parametrize(
    "path",
    [
        *("/results", "/api/v1/workloads", "/api/v1/allocations", f"/api/v1/reports?{PERIOD}"),
        *("/api/v1/plan", "/api/v1/actions", "/api/v1/actions/a1"),
    ],
)
def test_the_own_namespace_is_there(api: Api, path: str):
    response = ask(api, "GET", path, LEAD)
    assert (response.status, "own-job" in response.body.decode()) == (200, True)


class FailingSource(FakeSource):
    def read_series(self, allocation: AllocationKey, at: float, *, seconds: float) -> Chart:
        raise SourceError("the query {namespace='foreign-ns'} was refused")

    def read_processes(self, pods: Collection[PodKey], at: float) -> PodProcesses:
        raise SourceError("the query {namespace='foreign-ns'} was refused")


@pytest.mark.parametrize("path", ["/series", "/processes"])
def test_an_error_of_the_engine_is_hidden(path: str):
    with running_api(two_namespaces(), settings=make_settings(), source=FailingSource()) as api:
        response = ask(api, "GET", f"/api/v1/workloads/Job/own/own-job{path}", LEAD)
        assert (response.status, SECRET in response.body.decode()) == (503, False)
        assert SECRET in ask(api, "GET", f"/api/v1/workloads/Job/own/own-job{path}", ADMIN).body.decode()


@pytest.mark.parametrize("path", ["/actions", "/actions/a1", "/savings"])
def test_an_error_of_the_journal_is_hidden(path: str):
    control = FakeReclaim([OWN_JOB], failure="https://10.0.0.1:6443/api/v1/namespaces/foreign-ns: refused")
    with running_api(two_namespaces(), settings=make_settings(), reclaim=control) as api:
        response = ask(api, "GET", f"/api/v1{path}", LEAD)
        assert (response.status, SECRET in response.body.decode()) == (503, False)
        assert SECRET in ask(api, "GET", f"/api/v1{path}", ADMIN).body.decode()


def test_a_reason_with_an_error_of_the_engine_is_hidden():
    reasons = [unknown_reasons.QUERY_FAILED.fill(quantity="core", error="foreign-ns"), unknown_reasons.NO_CORE]
    result = two_namespaces()
    unknown = {1: reasons[0], 2: reasons[1]}
    result = make_result(replace(result.verdicts.usage, unknown=unknown), settings=make_settings())
    with running_api(result, settings=make_settings()) as api:
        path = "/api/v1/workloads/Job/own/own-job"
        assert SECRET in ask(api, "GET", path, ADMIN).body.decode()
        shown = ask(api, "GET", path, LEAD).body.decode()
        assert SECRET not in shown
        assert unknown_reasons.HIDDEN.en in shown
        assert unknown_reasons.NO_CORE.en in shown


def test_a_foreign_object_does_not_exist(api: Api):
    for path in ("/api/v1/workloads/Job/foreign-ns/foreign-job", "/api/v1/nodes/foreign-node/processes"):
        foreign, nothing = ask(api, "GET", path, LEAD), ask(api, "GET", path.replace("foreign", "absent"), LEAD)
        assert (foreign.status, foreign.body) == (404, nothing.body)


def test_counts_are_those_of_the_own_namespace(api: Api):
    health = ask(api, "GET", "/api/v1/health", LEAD).json
    assert (health["workloads"], health["allocations"], health["idle_gpus"]) == (1, 2, 1.5)
    assert (health["gpus"], health["unallocated_gpus"]) == (None, None)
    assert ask(api, "GET", "/results", LEAD).headers["x-unknown-count"] == "0"
    assert ask(api, "GET", "/results/stats", LEAD).json["total_gpus"] == 2


def test_a_holder_of_a_shared_gpu_in_a_foreign_namespace_is_hidden(api: Api):
    rows = {row["uuid"]: row for row in ask(api, "GET", "/api/v1/gpus", LEAD).json["items"]}
    assert set(rows) == {"GPU-shared", "GPU-own"}
    shared = rows["GPU-shared"]
    assert ([each["namespace"] for each in shared["holders"]], shared["hidden_holders"]) == (["own"], 1)
    assert (shared["gpus"], rows["GPU-own"]["hidden_holders"]) == (0.5, 0)


def test_costs_of_a_shared_gpu_are_those_of_the_own_share(api: Api):
    (own,) = ask(api, "GET", "/api/v1/workloads", LEAD).json["items"]
    everything = ask(api, "GET", "/api/v1/workloads?namespace=own", ADMIN).json["items"]
    assert own == everything[0]


def test_what_covers_the_whole_site_is_forbidden(api: Api):
    for path in ("/metrics", "/config", "/api/v1/sources", "/api/v1/deliveries", "/api/v1/reclaim"):
        response = ask(api, "GET", path, LEAD)
        assert (response.status, response.json["type"]) == (403, "urn:gpusteward:problem:limited")


def test_a_report_has_the_own_namespace_only_and_says_so(api: Api):
    report = ask(api, "GET", f"/api/v1/reports?{PERIOD}", LEAD).json
    assert ([each["name"] for each in report["groups"]], report["namespaces"]) == (["own"], ["own"])
    assert report["total"]["unallocated_gpu_ms"] is None
    whole = ask(api, "GET", f"/api/v1/reports?{PERIOD}", ADMIN).json
    assert 0 < report["total"]["allocated_gpu_ms"] < whole["total"]["allocated_gpu_ms"]


def test_a_filter_by_a_foreign_namespace_finds_nothing(api: Api):
    report = ask(api, "GET", f"/api/v1/reports?{PERIOD}&namespace=foreign-ns", LEAD).json
    assert (report["groups"], report["total"]["allocated_gpu_ms"]) == ([], 0)
    assert ask(api, "GET", "/api/v1/workloads?namespace=foreign-ns", LEAD).json["total"] == 0


def test_no_cached_response_or_cursor_of_somebody_else_is_valid(api: Api):
    for path in ("/results", "/api/v1/workloads", "/api/v1/workloads/Job/own/own-job"):
        tags = {ask(api, "GET", path, who).headers["etag"] for who in (LEAD, ADMIN)}
        assert len(tags) == 2
        for tag in tags:
            statuses = {ask(api, "GET", path, {**who, "If-None-Match": tag}).status for who in (LEAD, ADMIN)}
            assert statuses == {200, 304}
    following = ask(api, "GET", "/api/v1/allocations?limit=1", ADMIN).json["next"]
    assert ask(api, "GET", f"/api/v1/allocations?limit=1&cursor={following}", LEAD).status == 410


def test_events_are_about_the_own_namespace(ledger: LedgerAccess):
    with serving(ledger) as api:
        request = urllib.request.Request(api.url + "/api/v1/events", headers=LEAD)
        with urllib.request.urlopen(request, timeout=10) as stream:
            lines = [stream.readline() for _ in range(6)]
            api.publish(two_namespaces(number=2, at=AT + 300, is_idle=False))
            lines += [stream.readline() for _ in range(8)]
    text = b"".join(lines).decode()
    events = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]
    assert SECRET not in text
    assert [each["workloads"] for each in events[:2]] == [1, 1]
    assert (events[2]["changed"], events[2]["workloads"][0]["workload"]) == (1, "Job/own/own-job")
    assert ask_tag(events[2]) == ask_tag(events[1]) != ask_tag(events[0])


def ask_tag(event: dict[str, Any]) -> str:
    return str(event["tag"])


def test_limited_results_are_kept_once_and_not_without_bound():
    published = PublishedResult(two_namespaces())
    own = see("own")
    assert published.limit_to(own) is published.limit_to(see("own"))
    for number in range(2 * MOST_LIMITED):
        published.limit_to(see(f"nobody-{number}"))
    assert published.find_limited(own) is None
    kept = Counter(published.find_limited(see(f"nobody-{number}")) is not None for number in range(2 * MOST_LIMITED))
    assert kept[True] == MOST_LIMITED


def see(*namespaces: str, cluster: str = "*") -> VisibleNamespaces:
    return VisibleNamespaces(frozenset(NamespacePattern(each, cluster) for each in namespaces))


@pytest.mark.parametrize(
    ("visible", "cluster", "namespace", "expected"),
    [
        (see("vision-*"), "", "vision-a", True),
        (see("vision-*"), "", "vision", False),
        (see("vision-*"), "", "Vision-a", False),
        (see("a", "b"), "prod", "b", True),
        (see("a", cluster="prod"), "prod", "a", True),
        (see("a", cluster="prod"), "test", "a", False),
        (see("a", cluster="prod"), "", "a", False),
        (see("*", cluster="prod"), "prod", "", False),
    ],
)
def test_a_namespace_is_visible_by_name_or_pattern(
    visible: VisibleNamespaces, cluster: str, namespace: str, expected: bool
):
    assert visible.includes(cluster, namespace) is expected
