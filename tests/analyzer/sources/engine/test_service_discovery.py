"""The engine's Service is found by label on a real API server, with no more rights than to list Services."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpusteward.analyzer.active_source import ActiveSource
from gpusteward.analyzer.settings.file import SettingsFile
from gpusteward.analyzer.settings.flags import Flags
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.cli.doctor.check_results import CheckResult, CheckStatus
from gpusteward.cli.doctor.engine import check_engine, find_engines
from gpusteward.core.errors import ConfigurationError, SourceError
from gpusteward.simulate.fleets import fleet
from tests.analyzer.engines import RunningEngine, running_prometheus
from tests.analyzer.scraped_history import AT, scrape_history, scrape_times
from tests.kubernetes.cluster import Account, Cluster

pytestmark = pytest.mark.slow

LIST_SERVICES = [{"apiGroups": [""], "resources": ["services"], "verbs": ["list"]}]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    samples = scrape_history(list(fleet(2)), scrape_times())
    with running_prometheus(tmp_path_factory.mktemp("prometheus"), samples) as running:
        yield running


@pytest.fixture
def namespace(kubernetes: Cluster) -> str:
    return kubernetes.add_namespace("monitoring")


@pytest.fixture
def account(kubernetes: Cluster, namespace: str) -> Account:
    return kubernetes.add_account(namespace, LIST_SERVICES, is_cluster_wide=False)


def service(name: str, namespace: str, label: str, *, ports: list[dict[str, Any]], host: str = "") -> dict[str, Any]:
    kind = {"type": "ExternalName", "externalName": host} if host else {"selector": {"app": name}}
    about = {"name": name, "namespace": namespace, "labels": {"app": label}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": {**kind, "ports": ports}}


def make_settings(kubernetes: Cluster, account: Account, namespace: str, label: str, **more: str) -> Settings:
    return Settings.model_validate(
        {
            "prometheus": {"service_selector": f"app={label}", "service_namespace": namespace, **more},
            "kubernetes": {
                "api_url": kubernetes.url,
                "token_file": str(account.folder / "token"),
                "ca_file": str(account.folder / "ca.crt"),
            },
        }
    )


def test_the_engine_is_found_and_named(kubernetes: Cluster, account: Account, namespace: str, engine: RunningEngine):
    port = int(engine.url.rpartition(":")[2])
    ports = [{"name": "reloader", "port": 8080}, {"name": "web", "port": port}]
    label = kubernetes.make_name("engine")
    kubernetes.apply(service("prometheus", namespace, label, ports=ports, host="127.0.0.1.nip.test"))
    settings = make_settings(kubernetes, account, namespace, label)
    source = ActiveSource(settings)
    with pytest.raises(SourceError, match=r"service_port.*reloader \(8080\), web \(\d+\)"):
        source.read(AT)
    source.close()
    kubernetes.apply(service("prometheus", namespace, label, ports=ports, host="localhost"))
    source = ActiveSource(make_settings(kubernetes, account, namespace, label, service_port="web"))
    assert len(source.read(AT)) > 5
    described = source.describe()
    assert described["service"] == f"{namespace}/prometheus"
    assert described["url"] == f"http://localhost:{port}"
    assert described["engine"] == "Prometheus"
    assert source.request_counts["ok"] > 0
    source.close()
    verbs = {event["verb"] for event in kubernetes.read_audit(account.user)}
    assert verbs == {"list"}


def test_none_and_several_services_are_refused_and_named(kubernetes: Cluster, account: Account, namespace: str):
    label = kubernetes.make_name("engine")
    source = ActiveSource(make_settings(kubernetes, account, namespace, label))
    with pytest.raises(SourceError, match=f"no Service in {namespace} has the labels app={label}"):
        source.read(time.time())
    for name in ("one", "two"):
        kubernetes.apply(service(name, namespace, label, ports=[{"port": 9090}]))
    with pytest.raises(
        SourceError, match=rf"several Services \(2\) .* none is chosen: {namespace}/one, {namespace}/two"
    ):
        source.read(time.time())
    assert "several Services (2)" in source.describe()["failures"]["service"]
    assert "url" not in source.describe()
    source.close()


def test_without_the_right_to_list_services_the_rule_is_named(kubernetes: Cluster, account: Account):
    source = ActiveSource(make_settings(kubernetes, account, "", "engine"))  # all namespaces: not granted
    with pytest.raises(SourceError, match=r'resources \["services"\]'):
        source.read(time.time())
    source.close()


def test_credentials_need_the_namespace(tmp_path: Path):
    environ = {"GPUSTEWARD_PROMETHEUS__SERVICE_SELECTOR": "app=x", "GPUSTEWARD_PROMETHEUS__BEARER_TOKEN": "secret"}
    with pytest.raises(ConfigurationError, match=r"set prometheus\.service_namespace") as raised:
        SettingsFile(Flags(), environ, directory=tmp_path)
    assert "secret" not in str(raised.value).replace("service_selector", "")
    environ["GPUSTEWARD_PROMETHEUS__SERVICE_NAMESPACE"] = "monitoring"
    assert SettingsFile(Flags(), environ, directory=tmp_path).settings.prometheus.finds_service
    environ["PROM_URL"] = "http://prometheus:9090"
    assert not SettingsFile(Flags(), environ, directory=tmp_path).settings.prometheus.finds_service


def test_doctor_names_the_service_that_the_analyzer_would_find(
    kubernetes: Cluster, account: Account, namespace: str, engine: RunningEngine, tmp_path: Path
):
    label = kubernetes.make_name("engine")
    config = tmp_path / "config.yaml"
    settings = make_settings(kubernetes, account, namespace, label)
    chosen = {"service_selector": f"app={label}", "service_namespace": namespace}
    config.write_text(yaml.safe_dump({"prometheus": chosen, "kubernetes": settings.kubernetes.model_dump()}))
    missing, _ = find_engines(None, config, {}, directory=tmp_path, timeout_seconds=5)
    assert isinstance(missing, CheckResult)
    assert missing.status is CheckStatus.FAIL
    assert f"no Service in {namespace} has the labels" in missing.finding
    ports = [{"port": int(engine.url.rpartition(":")[2])}]
    kubernetes.apply(service("prometheus", namespace, label, ports=ports, host="localhost"))
    clients, origin = find_engines(None, config, {}, directory=tmp_path, timeout_seconds=5)
    assert not isinstance(clients, CheckResult)
    first = next(iter(check_engine(clients[0], origin=origin)))
    assert first.status is CheckStatus.OK
    assert f"Service {namespace}/prometheus, found by prometheus.service_selector" in first.finding
