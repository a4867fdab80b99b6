"""Whom the scraper believes, and who receives its credentials: pods of its own namespace, about their own node."""

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gpusteward.analyzer.sources.scrape.page_parser import OTHER_NODE
from gpusteward.analyzer.sources.scrape.sample_store import PageOrigin, SampleStore, StoreOptions
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.source import ScrapeSource
from gpusteward.analyzer.sources.scrape.targets import FileTargets, PodTargets, ReportedNode, StaticTargets
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.core.errors import SourceError
from gpusteward.kubernetes.api import ApiServer, read_own_namespace
from gpusteward.messages import unknown_reasons
from tests.analyzer.sources.scrape.page_server import serving_pages
from tests.analyzer.sources.scrape.test_page_parser import AT, page
from tests.analyzer.sources.scrape.test_targets import exporter
from tests.fakes.apiserver import FakeApiServer

OWN = "gpusteward"


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    """An agent in the own namespace, and a pod elsewhere that carries the same labels."""
    with FakeApiServer() as server:
        server.add_pod(exporter("agent", "10.0.0.1", port=9400, namespace=OWN))
        server.add_pod(exporter("mallory", "10.0.0.66", port=9400, namespace="team-m"))
        yield server


def list_hosts(api: FakeApiServer, **settings: object) -> dict[str, bool]:
    """Address -> whether it receives credentials."""
    targets = PodTargets(ApiServer(api.url), ScrapeSettings(**settings), own_namespace=OWN).read()
    return {target.url.host: target.gets_credentials for target in targets}


def test_pods_of_other_namespaces_are_not_scraped_unless_they_are_named(api: FakeApiServer):
    assert list_hosts(api) == {"10.0.0.1": True}
    assert all(path.startswith(f"/api/v1/namespaces/{OWN}/pods?") for path in api.requests)
    assert list_hosts(api, namespaces=["team-m"]) == {"10.0.0.1": True, "10.0.0.66": True}
    assert list_hosts(api, namespace="team-m") == {"10.0.0.66": True}


def test_never_sends_credentials_to_a_namespace_that_is_not_named(api: FakeApiServer):
    assert list_hosts(api, namespaces=["*"]) == {"10.0.0.1": True, "10.0.0.66": False}


def test_never_sends_credentials_to_a_port_that_a_pod_chose_itself(api: FakeApiServer):
    api.add_pod(exporter("other", "10.0.0.2", port=10250, namespace=OWN))
    assert list_hosts(api) == {"10.0.0.1": True, "10.0.0.2": False}
    assert list_hosts(api, port=10250) == {"10.0.0.1": False, "10.0.0.2": True}


def test_without_a_known_namespace_no_pod_is_scraped(api: FakeApiServer):
    with pytest.raises(SourceError, match=r"set scrape\.namespace"):
        PodTargets(ApiServer(api.url), ScrapeSettings()).read()
    assert api.requests == []


def test_the_own_namespace_is_that_of_the_pod_or_of_its_service_account(tmp_path: Path):
    assert read_own_namespace({}, account=tmp_path) == ""
    (tmp_path / "namespace").write_text("from-account\n")
    assert read_own_namespace({}, account=tmp_path) == "from-account"
    assert read_own_namespace({"POD_NAMESPACE": "from-pod"}, account=tmp_path) == "from-pod"


@contextmanager
def scraping_pod(text: str, **settings: object) -> Iterator[tuple[ScrapeSource, list[tuple[str, dict[str, str]]]]]:
    """A source that scrapes one pod on node n1, and the requests that the pod received."""
    with serving_pages({"/metrics": text.encode()}) as server, FakeApiServer() as api:
        api.add_pod(exporter("agent-x", "127.0.0.1", port=server.server_port, node="n1.example.org", namespace=OWN))
        chosen = ScrapeSettings(**{"interval": 1, "timeout": 5, "port": server.server_port, **settings})
        source = ScrapeSource(chosen, window_seconds=60, api=ApiServer(api.url), own_namespace=OWN)
        with closing(source):
            yield source, server.requests


def count_errors(source: ScrapeSource) -> dict[str, int]:
    return dict(source.describe()["bad_lines"])


def test_lines_of_a_pod_about_another_node_are_refused_and_counted():
    with scraping_pod(page("mine") + page("victim", Hostname="n2")) as (source, _):
        table = source.read(time.time())
        assert [(one.container.pod, one.node) for one in table.allocations] == [("mine", "n1.example.org")]
        assert count_errors(source) == {OTHER_NODE: 2}


def test_a_pod_that_names_only_another_node_reports_nothing():
    with scraping_pod(page("victim", Hostname="n2")) as (source, _):
        assert len(source.read(time.time())) == 0


def test_dcgm_exporter_may_write_the_name_of_its_own_pod_for_the_node():
    with scraping_pod(page("mine", Hostname="agent-x")) as (source, _):
        assert [one.node for one in source.read(time.time()).allocations] == ["n1.example.org"]


def test_processes_of_another_node_are_not_read_from_a_pod():
    holder = 'uuid="GPU-1",gpu="0",namespace="ml",pod="one",container="c"'
    info = f'gpusteward_allocation_info{{node="n1",{holder}}} 1\n'
    alive = f'gpusteward_gpu_use_processes{{node="n1",{holder},by="container"}} 1\n'
    process = 'gpusteward_process_memory_bytes{{node="{}",' + holder + ',pid="{}"}} 1\n'
    with scraping_pod(info + alive + process.format("n1", 7) + process.format("n2", 8)) as (source, _):
        source.read(time.time())
        found = source.read_processes([PodKey("ml", "one")], time.time())
        assert [(one.node, one.pid) for one in found.processes] == [("n1", 7)]


def test_a_pod_of_the_own_namespace_receives_the_token_and_others_never_do():
    with scraping_pod(page("mine"), bearer_token="s3cret") as (source, requests):
        source.read(time.time())
        assert {headers.get("Authorization") for _, headers in requests} == {"Bearer s3cret"}
    with scraping_pod(page("mine"), bearer_token="s3cret", namespace="other", namespaces=["*"]) as (source, requests):
        source.read(time.time())
        assert requests
        assert not any("s3cret" in json.dumps(headers) for _, headers in requests)


def make_store() -> SampleStore:
    return SampleStore(StoreOptions(interval=15, keep_seconds=60))


def ingest(store: SampleStore, target: str, text: str, node: ReportedNode, *, at: float = AT) -> dict[str, int]:
    """The errors of this target so far."""
    store.ingest(target, text.encode(), at, make_origin=lambda: PageOrigin(node=node))
    return dict(store.describe_target(target).error_counts)


def test_a_target_of_the_settings_speaks_for_the_node_it_names_first():
    store, node = make_store(), ReportedNode()
    assert ingest(store, "a", page("one"), node) == {}
    assert ingest(store, "a", page("one") + page("two", Hostname="n2"), node, at=AT + 15) == {OTHER_NODE: 2}
    assert node.node == "n1"


def test_a_target_cannot_take_the_host_name_of_another_target():
    hosts = {"n1", "n2"}
    assert ReportedNode(host="n2", hosts=hosts).admit("n1") is None
    assert ReportedNode(host="n2", hosts=hosts).admit("n1.example.org") is None
    assert ReportedNode(host="n2", hosts=hosts).admit("n2.example.org") == "n2.example.org"
    assert ReportedNode(host="10.0.0.1", hosts=hosts).admit("n3") == "n3"


def test_several_targets_may_be_on_one_node():
    store = make_store()
    for target in ("n1:9400", "n1:9445"):
        assert ingest(store, target, page("one"), ReportedNode(host="n1", hosts={"n1"})) == {}


def test_a_renamed_node_is_known_by_its_new_name_when_nothing_of_the_old_one_is_left():
    store, node = make_store(), ReportedNode()
    for number in range(30):
        name = {"Hostname": "n1"} if number < 2 else {"Hostname": "n9"}
        ingest(store, "a", page("one", **name), node, at=AT + 15 * number)
    assert node.node == "n9"


def test_the_gpu_of_another_node_reported_under_the_own_name_becomes_unknown():
    store = make_store()
    ingest(store, "a", page("one", core="90"), ReportedNode("n1"))
    ingest(store, "b", page("one", core="0", Hostname="n2"), ReportedNode("n2"))
    source = ScrapeSource(ScrapeSettings(selector=""), window_seconds=600)
    source.store = store
    assert source.read(AT + 15).unknown == {0: unknown_reasons.REPORTED_BY_TWO_NODES}


def test_targets_that_report_several_nodes_are_named_in_the_settings(tmp_path: Path):
    settings = ScrapeSettings(targets=["hami:31993", "n1"], any_node_targets=["hami:31993"])
    assert [target.may_report_any_node for target in StaticTargets(settings).read()] == [True, False]
    (tmp_path / "targets.json").write_text('[{"targets": ["hami:31993", "n1"], "labels": {"node": "x"}}]')
    targets = FileTargets(tmp_path / "targets.json", settings).read()
    assert targets is not None
    assert [(target.may_report_any_node, target.node) for target in targets] == [(True, "x"), (False, "x")]


def test_the_label_node_of_a_file_replaces_the_name_on_the_page():
    node = ReportedNode("x", is_renamed=True)
    assert (node.admit("agent-pod"), node.admit(""), node.admits("agent-pod")) == ("x", "x", True)
