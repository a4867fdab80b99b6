"""Agents are found among the pods of a real cluster, with the rights of the shipped manifest."""

import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.source import ScrapeSource
from gpusteward.analyzer.sources.scrape.targets import PodTargets, TargetRegistry
from gpusteward.analyzer.sources.usage.label_mapping import ClusterChoice
from gpusteward.core.errors import SourceError
from gpusteward.http.urls import HttpUrl
from tests.analyzer.sources.scrape.page_server import serving_pages
from tests.analyzer.sources.scrape.test_page_parser import page
from tests.kubernetes.cluster import Account, Cluster, pod

pytestmark = pytest.mark.slow

MANIFEST = Path(__file__).parents[4] / "deploy/manifests/analyzer.yaml"
LABELS = {"app.kubernetes.io/name": "gpusteward", "app.kubernetes.io/component": "agent"}


@pytest.fixture
def namespace(kubernetes: Cluster) -> str:
    return kubernetes.add_namespace("agents")


@pytest.fixture
def account(kubernetes: Cluster, namespace: str) -> Account:
    """The analyzer's account, limited to its own namespace."""
    objects = yaml.safe_load_all(MANIFEST.read_text())
    roles = {each["metadata"]["name"]: each["rules"] for each in objects if each["kind"] == "Role"}
    rules = roles["gpusteward-analyzer"]
    return kubernetes.add_account(namespace, rules, is_cluster_wide=False)


@pytest.fixture(scope="module")
def node(kubernetes: Cluster) -> str:
    return kubernetes.add_node(is_managed=False)


def add_agent(
    kubernetes: Cluster, namespace: str, node: str, ip: str, *, port: int | None = 9445, phase: str = "Running"
) -> None:
    item: dict[str, Any] = pod(kubernetes.make_name("agent"), namespace, node=node, labels=LABELS)
    item["spec"]["containers"][0]["ports"] = [{"name": "metrics", "containerPort": port}] if port else []
    kubernetes.apply(item)
    kubernetes.set_status(item, {"phase": phase, **({"podIP": ip, "podIPs": [{"ip": ip}]} if ip else {})})


def test_agents_are_found_among_the_running_pods(
    kubernetes: Cluster, namespace: str, account: Account, node: str
) -> None:
    add_agent(kubernetes, namespace, node, "127.77.0.11")
    add_agent(kubernetes, namespace, node, "fd00::2", port=None)
    add_agent(kubernetes, namespace, node, "")
    add_agent(kubernetes, namespace, node, "127.77.0.14", phase="Pending")
    kubernetes.apply(pod("trainer", namespace, node=node))
    targets = PodTargets(kubernetes.connect(account), ScrapeSettings(), own_namespace=namespace).read()
    assert {target.url for target in targets} == {
        HttpUrl("http", "127.77.0.11", 9445, "/metrics"),
        HttpUrl("http", "fd00::2", 9400, "/metrics"),
    }
    assert targets[0].labels == {"node": node}


def test_another_namespace_is_only_listed_where_a_role_allows_it(
    kubernetes: Cluster, namespace: str, account: Account, node: str
) -> None:
    add_agent(kubernetes, namespace, node, "127.77.0.11")
    other = kubernetes.add_namespace("team")
    add_agent(kubernetes, other, node, "127.77.0.66")
    api = kubernetes.connect(account)
    assert len(PodTargets(api, ScrapeSettings(), own_namespace=namespace).read()) == 1
    with pytest.raises(SourceError, match="403"):
        PodTargets(api, ScrapeSettings(namespaces=[other]), own_namespace=namespace).read()


def test_the_last_pods_are_kept_when_the_api_server_refuses(
    kubernetes: Cluster, namespace: str, account: Account, node: str
) -> None:
    add_agent(kubernetes, namespace, node, "127.77.0.11")
    pods = PodTargets(kubernetes.connect(account), ScrapeSettings(), own_namespace=namespace)
    registry = TargetRegistry([pods], limit=10)
    assert len(registry.refresh(0)) == 1
    (account.folder / "token").write_text("eyJhbGciOi.not-of-this-cluster")
    assert len(registry.refresh(100)) == 1
    assert "401" in registry.errors["pods of the cluster"]


@pytest.mark.parametrize("label", ["", "site"])
def test_the_agents_of_the_cluster_are_read_and_are_in_it_whatever_its_label_is_called(
    kubernetes: Cluster, namespace: str, account: Account, node: str, label: str
) -> None:
    text = page("one").replace('Hostname="n1"', f'Hostname="{node}"') + "tgi_request_count 5\n"
    with serving_pages({"/metrics": text.encode()}) as server:
        add_agent(kubernetes, namespace, node, "127.0.0.1", port=server.server_port)
        named = {"clusters": ClusterChoice(("east",), label), "own_cluster": "east"}
        settings = ScrapeSettings(interval=1, namespace=namespace)
        with closing(ScrapeSource(settings, window_seconds=60, api=kubernetes.connect(account), **named)) as source:
            found = source.read(time.time()).allocations
            assert [(one.cluster, one.container.pod) for one in found] == [("east", "one")]
            assert source.describe()["origins"] == ["pods of the cluster"]
            [server_pod] = source.read_servers(time.time(), seconds=60)
            assert (server_pod.container.namespace, server_pod.container.pod[:5]) == (namespace, "agent")
