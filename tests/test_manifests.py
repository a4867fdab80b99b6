"""The manifests request only the permissions that agent and analyzer need."""

from pathlib import Path

import pytest
import yaml
from pydantic import SecretStr

from gpusteward.agent.settings.table import read_settings
from gpusteward.analyzer.api.http.roles import Roles
from gpusteward.analyzer.judge.signatures.evidence import MAY_HIDE_A_JOB, RUN_THROUGH_KINDS
from gpusteward.analyzer.settings.file import SettingsFile
from gpusteward.analyzer.settings.flags import Flags
from gpusteward.analyzer.sources.owners.owner_kinds import OWNER_KINDS
from gpusteward.analyzer.sources.owners.owner_resolver import CHILD_KINDS, plural_of

MANIFEST = Path(__file__).parents[1] / "deploy" / "manifests" / "agent.yaml"
OBJECTS = {each["kind"]: each for each in yaml.safe_load_all(MANIFEST.read_text())}


@pytest.fixture
def pod() -> dict:
    return OBJECTS["DaemonSet"]["spec"]["template"]["spec"]


def test_the_agent_may_only_read_pods():
    rules = OBJECTS["ClusterRole"]["rules"]
    assert rules == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]


def test_the_container_has_no_capabilities_and_only_read_only_mounts(pod):
    (container,) = pod["containers"]
    context = container["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["readOnlyRootFilesystem"] is True
    assert context["allowPrivilegeEscalation"] is False
    assert all(mount["readOnly"] for mount in container["volumeMounts"])


def test_the_agent_accesses_the_node_only_through_hostpid_and_the_kubelet_socket(pod):
    assert pod["hostPID"] is True
    assert [volume["hostPath"]["path"] for volume in pod["volumes"]] == ["/var/lib/kubelet/pod-resources"]


def test_its_arguments_are_valid_flags_of_the_agent(pod):
    command, *flags = pod["containers"][0]["args"]
    assert command == "agent"
    assert read_settings(flags, {}).address == ("", 9400)


def test_the_service_monitor_honors_labels_and_selects_the_service():
    monitor, service = OBJECTS["ServiceMonitor"]["spec"], OBJECTS["Service"]
    assert monitor["endpoints"][0]["honorLabels"] is True
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]


def test_every_selector_matches_the_daemon_set():
    labels = OBJECTS["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
    assert OBJECTS["Service"]["spec"]["selector"].items() <= labels.items()
    assert OBJECTS["DaemonSet"]["spec"]["selector"]["matchLabels"].items() <= labels.items()


ANALYZER = {each["kind"]: each for each in yaml.safe_load_all(MANIFEST.with_name("analyzer.yaml").read_text())}


def test_the_analyzer_may_only_read_and_only_pods_and_their_owners():
    verbs = {verb for rule in ANALYZER["ClusterRole"]["rules"] for verb in rule["verbs"]}
    assert verbs == {"get"}
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
    owners = {(group, plural_of(kind)) for group, kinds in OWNER_KINDS.items() for kind in kinds}
    assert allowed == {("", "pods"), *owners}
    assert not any("*" in part for pair in allowed for part in pair)
    assert all(rule["verbs"] == ["get"] for rule in ANALYZER["ClusterRole"]["rules"] if "pods" not in rule["resources"])


def test_the_analyzer_may_read_every_known_owner_kind():
    known = {*RUN_THROUGH_KINDS, *MAY_HIDE_A_JOB, *CHILD_KINDS} | {
        kind for below in CHILD_KINDS.values() for kind in below
    }
    listed = {kind for kinds in OWNER_KINDS.values() for kind in kinds}
    assert known - {"VolcanoJob", "Pod"} <= listed  # VolcanoJob: a name that metrics use for the Job of Volcano


def test_probes_tell_liveness_from_readiness():
    for objects, kind in ((OBJECTS, "DaemonSet"), (ANALYZER, "Deployment")):
        (container,) = objects[kind]["spec"]["template"]["spec"]["containers"]
        paths = [container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")]
        assert paths == ["/livez", "/readyz"]


def test_the_tokens_are_mounted_for_the_group_only():
    volumes = {each["name"]: each for each in ANALYZER["Deployment"]["spec"]["template"]["spec"]["volumes"]}
    assert volumes["secrets"]["secret"]["defaultMode"] == 0o440


def test_the_manifest_names_no_model_that_pod_names_could_be_sent_to(tmp_path: Path):
    (tmp_path / "config.yaml").write_text(ANALYZER["ConfigMap"]["data"]["config.yaml"])
    assert not SettingsFile(Flags(), {"AI_API_KEY": ""}, directory=tmp_path).settings.ai.is_configured


def test_the_analyzer_runs_without_root_and_writes_only_its_ledger():
    (container,) = ANALYZER["Deployment"]["spec"]["template"]["spec"]["containers"]
    context = container["securityContext"]
    assert (context["runAsNonRoot"], context["readOnlyRootFilesystem"]) == (True, True)
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert [mount["name"] for mount in container["volumeMounts"] if not mount["readOnly"]] == ["ledger"]


def test_the_analyzers_settings_are_valid(tmp_path: Path):
    (tmp_path / "config.yaml").write_text(ANALYZER["ConfigMap"]["data"]["config.yaml"])
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text(ANALYZER["Secret"]["stringData"]["tokens.yaml"])
    file = SettingsFile(Flags(), {}, directory=tmp_path)
    assert file.settings.server.listen == ("", 8080)
    assert file.settings.prometheus.url == "http://prometheus.monitoring:9090"
    (container,) = ANALYZER["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert str(file.settings.ledger.directory) in [mount["mountPath"] for mount in container["volumeMounts"]]
    assert Roles(tokens, SecretStr("")).are_set  # no write access before a token is in the Secret
