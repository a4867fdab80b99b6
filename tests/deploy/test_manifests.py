"""The manifests are rendered from the chart, and request only the permissions that agent and analyzer need."""

import argparse
import json
import os
import subprocess
import urllib.parse
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from pydantic import SecretStr

from deploy.chart.manifests import DASHBOARDS, MANIFESTS, render
from gpusteward.agent.settings.table import read_settings
from gpusteward.analyzer.api.http.roles import Roles
from gpusteward.analyzer.settings.file import SettingsFile
from gpusteward.analyzer.settings.flags import add_settings_flags, flags_from
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.sources.offered_gpus import LISTED
from gpusteward.core.kinds import KINDS, MAY_HIDE_A_JOB, OWNERS, RUN_THROUGH_KINDS
from tests.agent.test_agent_process import free_port
from tests.analyzer.engines import find_program, run_engine
from tests.analyzer.serve_process import running_serve
from tests.deploy.helm import CHART, Helm
from tests.kubernetes.cluster import Cluster, wait_for
from tests.yaml_texts import read_all_yaml

MANIFEST = MANIFESTS / "agent.yaml"
OBJECTS = {each["kind"]: each for each in read_all_yaml(MANIFEST.read_text())}


def test_every_manifest_is_rendered_from_the_chart(helm: Helm):
    rendered = render(helm.program)
    assert sorted(rendered) == sorted([*MANIFESTS.glob("*.yaml"), DASHBOARDS])
    stale = [path.name for path, text in rendered.items() if path.read_text(encoding="utf-8") != text]
    assert not stale, "run `make manifests`"


def test_the_kustomization_makes_the_dashboards_of_the_chart(helm: Helm, kubernetes: Cluster):
    """As kubectl applies them: with the names, the labels for Grafana's sidecar and the files that the chart has."""
    made = list(yaml.safe_load_all(kubernetes.kubectl("kustomize", str(DASHBOARDS.parent))))
    objects = helm.template(CHART, {}, "--namespace", "gpusteward", "--show-only", "templates/dashboards.yaml")
    assert {each["metadata"]["name"] for each in objects} >= {"gpusteward-dashboard-cluster"}
    assert all(each["metadata"]["labels"]["grafana_dashboard"] == "1" for each in made)
    for each in objects:
        for name in ("app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart"):
            del each["metadata"]["labels"][name]

    def name_of(item: dict) -> str:
        return item["metadata"]["name"]

    assert sorted(made, key=name_of) == sorted(objects, key=name_of)


@pytest.mark.parametrize("path", sorted([*MANIFESTS.glob("*.yaml"), DASHBOARDS]), ids=lambda path: path.name)
def test_a_manifest_has_nothing_that_only_helm_understands(path: Path):
    text = path.read_text(encoding="utf-8")
    assert "helm.sh/" not in text
    assert "{{ include" not in text
    assert "app.kubernetes.io/instance" not in text


@pytest.fixture
def pod() -> dict:
    return OBJECTS["DaemonSet"]["spec"]["template"]["spec"]


def test_the_agent_may_only_read_pods():
    rules = OBJECTS["ClusterRole"]["rules"]
    assert rules == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]


def test_the_container_has_no_capabilities_and_only_read_only_mounts(pod):
    (container,) = pod["containers"]
    context = container["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["readOnlyRootFilesystem"] is True
    assert context["allowPrivilegeEscalation"] is False
    assert all(mount["readOnly"] for mount in container["volumeMounts"])


def test_the_agent_accesses_the_node_only_through_hostpid_proc_cgroups_and_the_kubelet_socket(pod):
    assert pod["hostPID"] is True
    paths = [volume["hostPath"]["path"] for volume in pod["volumes"]]
    assert paths == ["/var/lib/kubelet/pod-resources", "/proc", "/sys/fs/cgroup"]


def test_its_arguments_are_valid_flags_of_the_agent(pod):
    command, *flags = pod["containers"][0]["args"]
    assert command == "agent"
    settings = read_settings(flags, {})
    assert settings.address == ("", 9400)
    mounts = {mount["name"]: Path(mount["mountPath"]) for mount in pod["containers"][0]["volumeMounts"]}
    assert (settings.proc, settings.cgroup) == (mounts["proc"], mounts["cgroup"])


def test_the_service_monitor_honors_labels_and_selects_the_service():
    monitor, service = OBJECTS["ServiceMonitor"]["spec"], OBJECTS["Service"]
    assert monitor["endpoints"][0]["honorLabels"] is True
    assert monitor["endpoints"][0]["relabelings"] == [{"action": "labeldrop", "regex": "pod|namespace|container"}]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]


def test_every_selector_matches_the_daemon_set():
    labels = OBJECTS["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
    assert OBJECTS["Service"]["spec"]["selector"].items() <= labels.items()
    assert OBJECTS["DaemonSet"]["spec"]["selector"]["matchLabels"].items() <= labels.items()


ANALYZER = {
    each["kind"]: each
    for each in read_all_yaml(MANIFEST.with_name("analyzer.yaml").read_text())
    if each["metadata"]["name"] == "gpusteward-analyzer"
}


def test_the_analyzer_may_only_read_pods_their_owners_and_the_list_of_nodes():
    rules = ANALYZER["ClusterRole"]["rules"]
    verbs = {verb for rule in rules for verb in rule["verbs"]}
    assert verbs == {"get", "list"}
    assert [rule["resources"] for rule in rules if "list" in rule["verbs"]] == [["pods"], ["nodes"], ["resourceslices"]]
    assert not any("secrets" in rule["resources"] for rule in ANALYZER["ClusterRole"]["rules"])


def test_the_analyzer_may_list_pods_of_its_own_namespace_only():
    role, binding = ANALYZER["Role"], ANALYZER["RoleBinding"]
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    assert {each["metadata"]["namespace"] for each in (role, binding)} == {"gpusteward"}
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (container,) = ANALYZER["Deployment"]["spec"]["template"]["spec"]["containers"]
    (namespace,) = [each for each in container["env"] if each["name"] == "POD_NAMESPACE"]
    assert namespace["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.namespace"


def test_the_analyzer_names_every_resource_that_it_may_read():
    allowed = {
        (group, resource)
        for rule in ANALYZER["ClusterRole"]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    owners = {(kind.group, kind.plural) for kind in OWNERS}
    assert allowed == {("", "pods"), ("", "namespaces"), *owners, *LISTED}
    named = [rule for rule in ANALYZER["ClusterRole"]["rules"] if "namespaces" in rule["resources"]]
    assert [(rule["verbs"], rule["resourceNames"]) for rule in named] == [(["get"], ["kube-system"])]
    assert not any("*" in part for pair in allowed for part in pair)
    several = [rule["resources"] for rule in ANALYZER["ClusterRole"]["rules"] if len(rule["verbs"]) > 1]
    assert several == [["pods"]]


def test_the_analyzer_may_read_every_known_owner_kind():
    parents = [kind for kind in KINDS.values() if kind.children]
    known = {*RUN_THROUGH_KINDS, *MAY_HIDE_A_JOB} | {name for kind in parents for name in (kind.name, *kind.children)}
    listed = {kind.name for kind in OWNERS}
    assert known - {"VolcanoJob", "Pod"} <= listed  # VolcanoJob: a name that metrics use for the Job of Volcano


def test_probes_tell_liveness_from_readiness():
    for objects, kind in ((OBJECTS, "DaemonSet"), (ANALYZER, "Deployment")):
        (container,) = objects[kind]["spec"]["template"]["spec"]["containers"]
        paths = [container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")]
        assert paths == ["/livez", "/readyz"]


def test_the_tokens_are_mounted_for_the_group_only():
    volumes = {each["name"]: each for each in ANALYZER["Deployment"]["spec"]["template"]["spec"]["volumes"]}
    assert volumes["secrets"]["secret"]["defaultMode"] == 0o440


def read_analyzer_settings(folder: Path) -> Settings:
    """The settings of the analyzer that the manifest starts."""
    (folder / "config.yaml").write_text(ANALYZER["ConfigMap"]["data"]["config.yaml"])
    (container,) = ANALYZER["Deployment"]["spec"]["template"]["spec"]["containers"]
    command, *words = container["args"]
    assert command == "serve"
    parser = argparse.ArgumentParser()
    add_settings_flags(parser)
    flags = flags_from(parser.parse_args(words))
    return SettingsFile(replace(flags, config=folder / "config.yaml"), {}, directory=folder).settings


def test_the_manifest_names_no_model_that_pod_names_could_be_sent_to(tmp_path: Path):
    assert not read_analyzer_settings(tmp_path).ai.is_configured


def test_the_analyzer_runs_without_root_and_writes_only_its_ledger():
    (container,) = ANALYZER["Deployment"]["spec"]["template"]["spec"]["containers"]
    context = container["securityContext"]
    assert ANALYZER["Deployment"]["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"] is True
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert [mount["name"] for mount in container["volumeMounts"] if not mount["readOnly"]] == ["ledger"]


def test_the_analyzers_settings_are_valid(tmp_path: Path):
    settings = read_analyzer_settings(tmp_path)
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text("viewer: 0123456789abcdef0123456789abcdef\n")  # as the head of the file says
    assert settings.server.listen == ("", 8080)
    assert settings.prometheus.url == "http://prometheus.monitoring:9090"
    (container,) = ANALYZER["Deployment"]["spec"]["template"]["spec"]["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(settings.ledger.directory) == mounts["ledger"]
    assert str(settings.server.tokens_file) == f"{mounts['secrets']}/tokens.yaml"
    assert settings.scrape.selector.split(",") == [
        "app.kubernetes.io/component=agent",
        "app.kubernetes.io/name=gpusteward",
    ]
    assert Roles(tokens, SecretStr("")).are_set  # no write access without an operator's token


def test_the_operator_finds_the_token_of_the_service_monitor_in_the_secret_that_the_pod_waits_for():
    """It rejects a ServiceMonitor whose Secret lacks the key. Applying the manifest again changes no token."""
    (endpoint,) = ANALYZER["ServiceMonitor"]["spec"]["endpoints"]
    credentials = endpoint["authorization"]["credentials"]
    volumes = {each["name"]: each for each in ANALYZER["Deployment"]["spec"]["template"]["spec"]["volumes"]}
    assert volumes["secrets"]["secret"]["secretName"] == credentials["name"]
    text = MANIFEST.with_name("analyzer.yaml").read_text()
    assert f"create secret generic {credentials['name']}" in text
    assert f"--from-literal={credentials['key']}=" in text
    assert "kind: Secret\n" not in text


def create_tokens() -> dict[str, str]:
    """The Secret that the commands at the head of the file create."""
    lines = MANIFEST.with_name("analyzer.yaml").read_text().splitlines()
    commands = "\n".join(line.removeprefix("#") for line in lines if line.startswith("#   "))
    script = f'kubectl() {{ printf "%s\\n" "$@"; }}\n{commands}'
    done = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, check=True)
    literals = [line.removeprefix("--from-literal=") for line in done.stdout.splitlines() if "=" in line]
    return dict(literal.split("=", 1) for literal in literals)


@pytest.mark.slow
def test_prometheus_scrapes_the_analyzer_with_the_token_of_its_service_monitor(extended: Cluster, tmp_path: Path):
    """What the operator makes of the ServiceMonitor: it takes the credentials from the Secret, or rejects it."""
    monitor, secret, namespace = ANALYZER["ServiceMonitor"], create_tokens(), extended.add_namespace("manifests")
    about = {**monitor["metadata"], "namespace": namespace}
    path = f"/apis/monitoring.coreos.com/v1/namespaces/{namespace}/servicemonitors?fieldValidation=Strict"
    stored = extended.request("POST", path, {**monitor, "metadata": about})
    (endpoint,) = stored["spec"]["endpoints"]
    credentials = secret[endpoint["authorization"]["credentials"]["key"]]

    (tmp_path / "tokens.yaml").write_text(secret["tokens.yaml"])
    flags = (f"--tokens-file={tmp_path / 'tokens.yaml'}", "--set=server.anonymous_reads=never")
    with running_serve(
        tmp_path, *flags, prometheus_url="http://127.0.0.1:9", env={"PATH": os.environ["PATH"]}
    ) as server:
        target = {"static_configs": [{"targets": [urllib.parse.urlsplit(server.url).netloc]}], "scrape_interval": "1s"}
        jobs = [
            {"job_name": "monitored", **target, "authorization": {"credentials": credentials}},
            {"job_name": "nobody", **target},
        ]
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump({"scrape_configs": jobs}))
        address = f"127.0.0.1:{free_port()}"
        command = [find_program("prometheus"), f"--config.file={tmp_path}/prometheus.yml"]
        command += [f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address={address}", "--log.level=error"]
        with run_engine(command, f"http://{address}", "/-/ready"):
            wait_for(lambda: read_up(address) == {"monitored": "1", "nobody": "0"}, 60)


def read_up(address: str) -> dict[str, str]:
    """By job."""
    with urllib.request.urlopen(f"http://{address}/api/v1/query?query=up", timeout=10) as answer:
        return {each["metric"]["job"]: each["value"][1] for each in json.load(answer)["data"]["result"]}
