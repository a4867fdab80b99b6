"""What we tell people to apply asks for as little as the agent needs."""

from pathlib import Path

import pytest
import yaml

from gpusteward.agent.settings.table import read_settings

MANIFEST = Path(__file__).parents[1] / "deploy" / "manifests" / "agent.yaml"
OBJECTS = {each["kind"]: each for each in yaml.safe_load_all(MANIFEST.read_text())}


@pytest.fixture
def pod() -> dict:
    return OBJECTS["DaemonSet"]["spec"]["template"]["spec"]


def test_the_agent_may_only_read_pods():
    rules = OBJECTS["ClusterRole"]["rules"]
    assert rules == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]


def test_the_container_keeps_no_capability_and_writes_nowhere(pod):
    (container,) = pod["containers"]
    context = container["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["readOnlyRootFilesystem"] is True
    assert context["allowPrivilegeEscalation"] is False
    assert all(mount["readOnly"] for mount in container["volumeMounts"])


def test_the_node_is_seen_through_hostpid_alone(pod):
    assert pod["hostPID"] is True
    assert [volume["hostPath"]["path"] for volume in pod["volumes"]] == ["/var/lib/kubelet/pod-resources"]


def test_its_arguments_are_ones_the_agent_takes(pod):
    command, *flags = pod["containers"][0]["args"]
    assert command == "agent"
    assert read_settings(flags, {}).address == ("", 9400)


def test_the_service_monitor_keeps_pod_labels_and_finds_the_service():
    monitor, service = OBJECTS["ServiceMonitor"]["spec"], OBJECTS["Service"]
    assert monitor["endpoints"][0]["honorLabels"] is True
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]


def test_every_selector_finds_the_daemon_set():
    labels = OBJECTS["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
    assert OBJECTS["Service"]["spec"]["selector"].items() <= labels.items()
    assert OBJECTS["DaemonSet"]["spec"]["selector"]["matchLabels"].items() <= labels.items()
