"""Values of the chart and settings of the code cannot drift apart, and values that cannot work are refused."""

import argparse
import base64
import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from deploy.chart.generate import SECRETS
from deploy.chart.value_comments import read_values, walk
from gpusteward import __version__
from gpusteward.agent.settings.table import SETTINGS, read_settings
from gpusteward.analyzer.reclaim.policies.file import parse_policies
from gpusteward.analyzer.settings.effective import KNOWN
from gpusteward.analyzer.settings.fields import find_secret_files
from gpusteward.analyzer.settings.file import SettingsFile
from gpusteward.analyzer.settings.flags import add_settings_flags, flags_from
from gpusteward.analyzer.settings.layers import variable_of
from gpusteward.cli.api.client import Client
from gpusteward.cli.json_access import Row
from gpusteward.cli.kubectl.analyzer import find_analyzer
from gpusteward.core.kinds import OWNERS
from tests.deploy.conftest import VALUE_SETS
from tests.deploy.helm import CHART, ROOT, Helm, HelmError
from tests.deploy.test_chart_release import HASH
from tests.documents import Block, list_blocks
from tests.yaml_texts import read_yaml

Json = dict[str, Any]
ABOUT = read_yaml((CHART / "Chart.yaml").read_text())
NOT_SETTINGS = {"NODE_NAME", "POD_NAMESPACE", "POD_NAME", "POD_IP", "LD_LIBRARY_PATH"}


def find_containers(objects: list[Json], name: str) -> Iterator[Json]:
    for item in objects:
        if item["kind"] in ("DaemonSet", "Deployment"):
            for container in item["spec"]["template"]["spec"]["containers"]:
                if container["name"] == name:
                    yield container


def test_the_chart_has_the_version_of_the_package(rendered: dict[str, list[Json]]):
    assert ABOUT["version"] == ABOUT["appVersion"] == __version__
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == __version__
    images = [
        container["image"] for name in ("agent", "analyzer") for container in find_containers(rendered["default"], name)
    ]
    assert images == [f"gpusteward-agent:{__version__}", f"gpusteward-analyzer:{__version__}"]
    listed = read_yaml(ABOUT["annotations"]["artifacthub.io/images"])
    assert [each["image"] for each in listed] == images


@pytest.mark.parametrize("name", VALUE_SETS)
def test_the_agent_accepts_its_flags_and_variables(name: str, rendered: dict[str, list[Json]]):
    check_agent(rendered[name])


def check_agent(objects: list[Json]) -> None:
    for container in find_containers(objects, "agent"):
        command, *flags = (flag for flag in container["args"] if not flag.startswith("--config-file="))  # tested below
        assert command == "agent"
        given = {each["name"]: each.get("value", "x") for each in container["env"]}
        settings = read_settings(flags, given)
        assert settings.address[1] == container["ports"][0]["containerPort"]
        known = {variable for setting in SETTINGS for variable in setting.environment}
        assert {name for name in given if not name.startswith("NVIDIA_")} <= known | NOT_SETTINGS
        check_paths(container, (settings.ratio_file, settings.collectors, settings.web_config_file))


def check_paths(container: Json, paths: tuple[Path | None, ...]) -> None:
    """Files that flags name are inside of a mounted folder."""
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert all(path is None or str(path.parent) in mounts for path in paths)


@pytest.mark.parametrize("name", VALUE_SETS)
def test_the_analyzer_accepts_its_flags_settings_and_variables(
    name: str, rendered: dict[str, list[Json]], tmp_path: Path
):
    check_analyzer(rendered[name], tmp_path)


def check_analyzer(objects: list[Json], tmp_path: Path) -> None:
    config = [each for each in objects if each["kind"] == "ConfigMap" and "config.yaml" in each["data"]]
    for container in find_containers(objects, "analyzer"):
        (tmp_path / "config.yaml").write_text(config[0]["data"]["config.yaml"] if config else "")
        parser = argparse.ArgumentParser()
        add_settings_flags(parser)
        flags = replace(flags_from(parser.parse_args(container["args"][1:])), config=tmp_path / "config.yaml")
        file = SettingsFile(flags, {}, directory=tmp_path)
        assert file.settings.server.listen == ("", container["ports"][0]["containerPort"])
        assert str(file.settings.ledger.directory) in [mount["mountPath"] for mount in container["volumeMounts"]]
        variables = {each["name"] for each in container["env"]} - NOT_SETTINGS
        assert variables <= {variable_of(path) for path in KNOWN}
        check_paths(container, (file.settings.server.tokens_file,))


def test_every_secret_setting_can_come_from_one_existing_secret(rendered: dict[str, list[Json]]):
    (container,) = find_containers(rendered["secrets"], "analyzer")
    refs = {each["name"]: each["valueFrom"]["secretKeyRef"] for each in container["env"] if "GPUSTEWARD" in each["name"]
            and "valueFrom" in each}  # fmt: skip
    assert set(refs) == {variable_of(path) for path in SECRETS}
    assert refs.pop("GPUSTEWARD_AI__API_KEY") == {"name": "openai", "key": "api-key"}
    assert refs.pop("GPUSTEWARD_CONTROL__SECRET") == {"name": "gpusteward-analyzer", "key": "control.secret"}
    assert all(ref["name"] == "gpusteward-settings" and ref["optional"] for ref in refs.values())
    assert all(refs[variable_of(path)]["key"] == path for path in SECRETS if variable_of(path) in refs)


def test_every_setting_of_the_analyzer_is_a_value(helm: Helm):
    """Also those whose section the defaults do not name: `analyzer.config` takes them all, and no others."""
    schema = read_yaml((CHART / "values.schema.json").read_text())["properties"]["analyzer"]["properties"]["config"]
    assert set(list_leaves(schema)) == KNOWN.keys() | find_secret_files(KNOWN).keys()


def list_leaves(schema: Json, prefix: str = "") -> Iterator[str]:
    for key, part in schema["properties"].items():
        if "properties" in part:
            yield from list_leaves(part, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def test_every_value_is_used_by_a_template():
    templates = "".join(path.read_text() for path in CHART.glob("templates/**/*") if path.is_file())
    unused = [
        path for path, value in walk(read_values())
        if not value.children and not re.search(rf"[.\"]{re.escape(value.key)}\b", templates)
    ]  # fmt: skip
    within = ("Probe.", "rollingUpdate.", "prometheusRule.")  # handed over as a whole, and switches named as files
    assert [path for path in unused if not any(part in path for part in within)] == []


def read_quantity(text: str) -> float:
    """`48Mi` in bytes, `10m` in cores."""
    factors = {"Mi": 2**20, "Gi": 2**30, "m": 1e-3}
    number, unit = re.fullmatch(r"(\d+)(\w*)", text).groups()
    return float(number) * factors.get(unit, 1)


def test_requests_and_limits_of_the_agent_follow_from_the_measured_figures():
    resources = read_yaml((CHART / "values.yaml").read_text())["agent"]["resources"]
    text = (ROOT / "bench/results/agent.md").read_text()
    peak = max(map(float, re.findall(r"^\| highest RSS ever, MB +\| +([\d.]+) \|", text, re.MULTILINE))) * 1e6
    assert peak <= read_quantity(resources["requests"]["memory"])
    assert 2 * peak <= read_quantity(resources["limits"]["memory"])
    windows = re.findall(r"^- CPU (?:at 5 s|while scraped), .*: gpusteward agent ([\d., ]+);", text, re.MULTILINE)
    percents = [float(percent) for window in windows for percent in window.split(", ")]
    assert len(percents) == 2 * 2 * 3, "two sizes, idle and scraped, three windows"
    assert max(percents) / 100 <= read_quantity(resources["requests"]["cpu"])
    assert "cpu" not in resources["limits"]


def test_requests_and_limits_of_the_analyzer_follow_from_the_measured_figures():
    resources = read_yaml((CHART / "values.yaml").read_text())["analyzer"]["resources"]
    text = (ROOT / "bench/results/analyzer.md").read_text()
    found = re.findall(
        r"^\| [\d,]+ GPUs: RSS after the requests \(highest ever\), MB +\| +\d+ \((\d+)\) \|$", text, re.MULTILINE
    )
    peaks = [int(megabytes) * 1e6 for megabytes in found]
    assert len(peaks) == 3, "sizes"
    assert min(peaks) <= read_quantity(resources["requests"]["memory"]), "of a small site"
    assert 2 * max(peaks) <= read_quantity(resources["limits"]["memory"]), "of the largest"


def test_every_file_of_rules_can_be_switched_off():
    switches = {key for key, value in read_values()["prometheusRule"].children.items() if value.default is True}
    assert {path.stem for path in CHART.glob("files/rules/*.yaml")} == switches


def test_the_larger_role_patches_known_kinds_and_deletes_nothing():
    rules = read_yaml((CHART / "files/rbac/enforce.yaml").read_text())
    owners = {(kind.group, kind.plural) for kind in OWNERS}
    others = {("kueue.x-k8s.io", "workloads"), ("keda.sh", "scaledobjects"), ("", "pods")}
    patched = {
        (group, resource)
        for rule in rules
        if "patch" in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert patched - owners == others
    verbs = {verb for rule in rules for verb in rule["verbs"]}
    assert verbs == {"patch", "create"}
    text = yaml.safe_dump(rules)
    assert "*" not in text
    assert "secrets" not in text


def read_rights(file: str) -> list[Json]:
    return read_yaml((CHART / f"files/rbac/{file}.yaml").read_text())


def list_rules(objects: list[Json], kind: str) -> list[Json]:
    return [rule for each in objects if each["kind"] == kind for rule in each["rules"]]


@pytest.mark.parametrize(
    ("mode", "rights", "files"),
    [
        ("off", False, ()),
        ("observe", False, ("plan",)),
        *((mode, True, ("plan", "enforce")) for mode in ("off", "observe", "enforce")),
    ],
)
def test_the_rights_of_the_analyzer_are_a_value_of_their_own(mode: str, rights: bool, files: list[str], helm: Helm):
    """So that switching reclaim off leaves them: what is suspended can be restored."""
    values = {"agent": {"enabled": False}, "kubectl": {"enabled": False}, "prometheus": {"url": "http://p:9090"}}
    objects = helm.template(CHART, values | {"reclaim": {"mode": mode, "rights": rights}})
    rules = list_rules(objects, "ClusterRole")
    assert rules == [rule for file in ("observe", *files) for rule in read_rights(file)]
    leases = [rule for rule in list_rules(objects, "Role") if rule["resources"] == ["leases"]]
    assert len(leases) == rights
    written = {verb for rule in [*rules, *leases] for verb in rule["verbs"]} - {"get", "list", "watch"}
    assert written == ({"patch", "create"} if rights else set())
    config = next(each for each in objects if each["kind"] == "ConfigMap")["data"]["config.yaml"]
    assert read_yaml(config).get("reclaim", {"mode": "off"})["mode"] == mode


@pytest.mark.parametrize("mode", ["off", "observe", "enforce"])
def test_with_namespaces_only_roles_in_them_may_change_anything(mode: str, helm: Helm):
    values = {"agent": {"enabled": False}, "kubectl": {"enabled": False}, "prometheus": {"url": "http://p:9090"}}
    reclaim = {"mode": mode, "rights": True, "namespaces": ["vision", "chat", "vision"]}
    objects = helm.template(CHART, values | {"reclaim": reclaim})
    assert list_rules(objects, "ClusterRole") == [*read_rights("observe"), *read_rights("plan")]
    assert {verb for rule in list_rules(objects, "ClusterRole") for verb in rule["verbs"]} == {"get", "list"}
    of_reclaim = [each for each in objects if each["metadata"]["name"] == "gpusteward-analyzer-default-reclaim"]
    assert [(each["kind"], each["metadata"]["namespace"]) for each in of_reclaim] == [
        (kind, namespace) for kind in ("Role", "RoleBinding") for namespace in ("vision", "chat")
    ]
    assert [each["rules"] for each in of_reclaim if each["kind"] == "Role"] == [read_rights("enforce")] * 2
    account = {"kind": "ServiceAccount", "name": "gpusteward-analyzer", "namespace": "default"}
    for each in of_reclaim:
        if each["kind"] == "RoleBinding":
            assert (each["roleRef"]["kind"], each["roleRef"]["name"]) == ("Role", each["metadata"]["name"])
            assert each["subjects"] == [account]
    config = next(each for each in objects if each["kind"] == "ConfigMap")["data"]["config.yaml"]
    assert read_yaml(config)["reclaim"]["namespaces"] == ["vision", "chat"]


def test_namespaces_without_rights_limit_the_program_and_give_no_role(helm: Helm):
    reclaim = {"mode": "observe", "namespaces": ["vision"]}
    objects = helm.template(CHART, {"kubectl": {"enabled": False}, "reclaim": reclaim})
    verbs = {verb for kind in ("Role", "ClusterRole") for rule in list_rules(objects, kind) for verb in rule["verbs"]}
    assert verbs <= {"get", "list", "watch"}
    maps = {each["metadata"]["name"]: each["data"] for each in objects if each["kind"] == "ConfigMap"}
    assert read_yaml(maps["gpusteward-analyzer"]["config.yaml"])["reclaim"]["namespaces"] == ["vision"]


def test_policies_are_a_file_of_their_own_that_the_analyzer_accepts(helm: Helm, tmp_path: Path):
    policies = [{"name": "notebooks", "match": {"kinds": ["Notebook"]}, "window": "2h", "action": "suspend"}]
    objects = helm.template(CHART, {"reclaim": {"mode": "observe", "policies": policies}})
    maps = {each["metadata"]["name"]: each["data"] for each in objects if each["kind"] == "ConfigMap"}
    text = maps["gpusteward-analyzer-policies"]["policies.yaml"]
    assert [each.name for each in parse_policies(text, where="chart").policies] == ["notebooks"]
    config = read_yaml(maps["gpusteward-analyzer"]["config.yaml"])
    assert config["reclaim"] == {"mode": "observe", "policy_file": "/etc/gpusteward/policies/policies.yaml"}


def read_chart_policies(helm: Helm, reclaim: Json) -> list[str] | None:
    objects = helm.template(CHART, {"reclaim": reclaim})
    maps = {each["metadata"]["name"]: each["data"] for each in objects if each["kind"] == "ConfigMap"}
    config = read_yaml(maps["gpusteward-analyzer"]["config.yaml"])
    if "gpusteward-analyzer-policies" not in maps:
        assert "policy_file" not in config.get("reclaim", {})
        return None
    assert config["reclaim"]["policy_file"] == "/etc/gpusteward/policies/policies.yaml"
    text = maps["gpusteward-analyzer-policies"]["policies.yaml"]
    return [each.name for each in parse_policies(text, where="chart").policies]


def test_without_policies_nothing_is_acted_on_and_the_example_is_a_value(helm: Helm):
    assert read_chart_policies(helm, {"mode": "off"}) is None
    assert read_chart_policies(helm, {"mode": "observe"}) == []
    example = ["interactive", "batch", "serving"]
    assert read_chart_policies(helm, {"mode": "observe", "examplePolicies": True}) == example
    own = [{"name": "mine", "action": "notify", "match": {"namespaces": "a"}}]
    both = {"mode": "observe", "examplePolicies": True, "policies": own}
    assert read_chart_policies(helm, both) == ["mine", *example]


ROLES_OF_PEOPLE = ("gpusteward-viewer", "gpusteward-operator", "gpusteward-kubectl")
"""No program has them: `test_roles_of_people_are_bound_to_no_program`."""


def test_roles_of_people_are_bound_to_no_program(rendered: dict[str, list[Json]]):
    bound = [
        subject["kind"]
        for objects in rendered.values()
        for each in objects
        if each["kind"] == "RoleBinding" and each["roleRef"]["name"] in ROLES_OF_PEOPLE
        for subject in each["subjects"]
    ]
    assert bound == ["Group", "Group"]
    for objects in rendered.values():
        accounts = [each for each in objects if each["kind"] == "ServiceAccount"]
        people = [each for each in accounts if each["metadata"]["name"] in ROLES_OF_PEOPLE]
        assert all(each["automountServiceAccountToken"] is False for each in people)
        pods = [each["spec"]["template"]["spec"] for each in objects if each["kind"] in ("DaemonSet", "Deployment")]
        assert not {pod["serviceAccountName"] for pod in pods} & set(ROLES_OF_PEOPLE)


@pytest.mark.parametrize("name", ["default", "https"])
def test_roles_of_people_name_the_service_as_the_plugin_reaches_it(name: str, rendered: dict[str, list[Json]]):
    (service,) = [
        each
        for each in rendered[name]
        if each["kind"] == "Service" and each["metadata"]["name"] == "gpusteward-analyzer"
    ]
    found = find_analyzer(
        cast("Client", SimpleNamespace(read=lambda _: Row(service))),
        chosen="gpusteward/gpusteward-analyzer",
        context="",
        namespace="",
    )
    roles = [each for each in rendered[name] if each["kind"] == "Role" and each["metadata"]["name"] in ROLES_OF_PEOPLE]
    assert {each["metadata"]["name"] for each in roles} == set(ROLES_OF_PEOPLE)
    for role in roles:
        (rule,) = [each for each in role["rules"] if each["resources"] == ["services/proxy"]]
        (proxied,) = rule["resourceNames"]
        assert found.proxy_path == f"/api/v1/namespaces/gpusteward/services/{proxied}/proxy"


def test_observe_is_the_default_and_may_only_read(rendered: dict[str, list[Json]]):
    for name, objects in rendered.items():
        verbs = {
            verb
            for each in objects
            if each["kind"] in ("Role", "ClusterRole") and each["metadata"]["name"] not in ROLES_OF_PEOPLE
            for rule in each["rules"]
            for verb in rule["verbs"]
        }
        assert (verbs <= {"get", "list", "watch"}) is (name != "enforce")


@pytest.mark.parametrize("block", [each for each in list_blocks("yaml") if each.mark == "values"], ids=str)
def test_documented_values_are_accepted_by_the_chart_and_by_both_programs(block: Block, helm: Helm, tmp_path: Path):
    objects = helm.template(CHART, read_yaml(block.text))
    assert objects
    check_agent(objects)
    check_analyzer(objects, tmp_path)


@pytest.mark.parametrize("flags", [["-c", "10000"], ["-c=10000"], ["--collect-interval", "10000"]])
def test_the_interval_of_dcgm_exporter_replaces_that_of_the_values(flags: list[str], helm: Helm):
    (container,) = find_containers(helm.template(CHART, {"agent": {"arguments": flags}}), "agent")
    assert read_settings(container["args"][1:], {}).interval_seconds == 10


def test_cgroups_of_the_node_are_not_read_where_they_are_not_mounted(helm: Helm):
    objects = helm.template(CHART, {"agent": {"hostCgroupMount": {"enabled": False}}})
    (container,) = find_containers(objects, "agent")
    assert read_settings(container["args"][1:], {}).cgroup is None
    assert "cgroup" not in {mount["name"] for mount in container["volumeMounts"]}


def find_config_file(objects: list[Json]) -> tuple[Json, Json]:
    """The volume with dcgm-exporter's configuration file, and where it is mounted."""
    pod = next(each for each in objects if each["kind"] == "DaemonSet")["spec"]["template"]["spec"]
    (volume,) = (each["configMap"] for each in pod["volumes"] if each["name"] == "config")
    (mount,) = (each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "config")
    return volume, mount


@pytest.mark.parametrize(("interval", "seconds"), [(5, 90), (2.5, 2.5)])
def test_the_configuration_file_of_dcgm_exporters_chart_is_read(
    interval: float, seconds: float, helm: Helm, tmp_path: Path
):
    data = "version: 1\nmetrics:\n  file: /etc/x.csv\ncollection:\n  interval: 1m30s\n"
    values = {"agent": {"interval": interval, "config": {"enabled": True, "create": True, "data": data}}}
    objects = helm.template(CHART, values)
    volume, mount = find_config_file(objects)
    maps = {each["metadata"]["name"]: each["data"] for each in objects if each["kind"] == "ConfigMap"}
    file = tmp_path / "config.yaml"
    file.write_text(maps[volume["name"]][mount["subPath"]])
    (container,) = find_containers(objects, "agent")
    arguments = [each.replace(mount["mountPath"], str(file)) for each in container["args"][1:]]
    settings = read_settings(arguments, {})
    assert settings.config_file == file
    assert (settings.collectors, settings.interval_seconds) == (Path("/etc/x.csv"), seconds)


def test_a_changed_configuration_file_starts_the_agents_again(helm: Helm):
    def annotate(data: str) -> str:
        objects = helm.template(CHART, {"agent": {"config": {"enabled": True, "data": data}}})
        pod = next(each for each in objects if each["kind"] == "DaemonSet")["spec"]["template"]
        return str(pod["metadata"]["annotations"]["checksum/config"])

    assert annotate("version: 1") != annotate("version: 2")


def test_the_configuration_file_may_be_in_a_configmap_that_exists(helm: Helm):
    config = {"enabled": True, "create": False, "name": "theirs", "key": "a.yaml", "mountPath": "/etc/b.yaml"}
    objects = helm.template(CHART, {"agent": {"config": config}})
    volume, mount = find_config_file(objects)
    assert (volume["name"], mount["subPath"], mount["mountPath"]) == ("theirs", "a.yaml", "/etc/b.yaml")
    (container,) = find_containers(objects, "agent")
    assert "--config-file=/etc/b.yaml" in container["args"]
    assert not [each for each in objects if each["kind"] == "ConfigMap" and each["metadata"]["name"] == "theirs"]


REFUSED = {
    "an empty configuration file": (
        {"agent": {"config": {"enabled": True}}},
        "- agent.config.data: the configuration file is empty.",
    ),
    "a configuration file without a ConfigMap": (
        {"agent": {"config": {"enabled": True, "create": False}}},
        "- agent.config.name: which ConfigMap has the configuration file?",
    ),
    "replicas without PostgreSQL": (
        {"analyzer": {"replicas": 2}},
        "- analyzer.replicas: 2 replicas cannot share an SQLite file. Set analyzer.postgresql.url or "
        "analyzer.postgresql.existingSecret.name, or use one replica.",
    ),
    "nothing to read": (
        {"agent": {"enabled": False}},
        "- agent.enabled: without agents the analyzer has nothing to read.",
    ),
    "nothing to install": (
        {"agent": {"enabled": False}, "analyzer": {"enabled": False}},
        "- agent.enabled, analyzer.enabled: both are false, so nothing would be installed.",
    ),
    "an address without a scheme": (
        {"prometheus": {"url": "prometheus:9090"}},
        '- prometheus.url: "prometheus:9090" is not an address. Write it with its scheme',
    ),
    "a secret in a ConfigMap": (
        {"analyzer": {"config": {"ai": {"api_key": "sk-1"}}}},
        "- analyzer.config.ai.api_key: this is a secret, and everybody who may read ConfigMaps would see it.",
    ),
    "a setting of the chart": (
        {"analyzer": {"config": {"server": {"address": ":80"}}}},
        "- analyzer.config.server.address: this setting belongs to the chart.",
    ),
    "a budget that blocks drains": (
        {"analyzer": {"podDisruptionBudget": {"enabled": True}}},
        "- analyzer.podDisruptionBudget.enabled: with one replica the budget would block every drain of its node.",
    ),
    "HTTPS without a certificate": (
        {"agent": {"tlsServerConfig": {"enabled": True}}},
        "- agent.tlsServerConfig.existingSecret: HTTPS needs a certificate.",
    ),
    "certificates that probes do not have": (
        {
            "agent": {
                "tlsServerConfig": {"enabled": True, "existingSecret": "x", "clientAuthType": "RequireAnyClientCert"}
            }
        },
        "- agent.tlsServerConfig.clientAuthType: probes of the kubelet have no certificate",
    ),
    "a password that the analyzer does not have": (
        {"agent": {"basicAuth": {"users": {"prometheus": HASH}}}},
        "- agent.basicAuth.users: the analyzer scrapes the agents itself and has no password.",
    ),
    "a tag as a digest": (
        {"agent": {"image": {"digest": "v1"}}},
        '- image.digest: "v1" is not a digest.',
    ),
    "a short token": (
        {"analyzer": {"tokens": {"viewer": "short"}}},
        "- analyzer.tokens.viewer: a token of 5 characters can be guessed.",
    ),
    "two ways to scrape": (
        {"scrapeAnnotations": {"enabled": True}, "serviceMonitor": {"enabled": True}},
        "- scrapeAnnotations.enabled: with ServiceMonitors too every agent could be scraped twice",
    ),
    "a route without a Gateway": (
        {"analyzer": {"httpRoute": {"enabled": True}}},
        "- analyzer.httpRoute.parentRefs: a route needs a Gateway.",
    ),
    "everything shown to everybody": (
        {
            "analyzer": {
                "ingress": {"enabled": True, "hosts": ["x"]},
                "config": {"server": {"anonymous_reads": "always"}},
            }
        },
        '- analyzer.config.server.anonymous_reads: "always" behind an Ingress or a route would show every workload',
    ),
    "a Service that is headless and has ports of nodes": (
        {"agent": {"service": {"type": "NodePort"}}},
        '- agent.service.clusterIP: a Service of type NodePort cannot be headless. Set clusterIP to "".',
    ),
    "traffic of a node to a headless Service": (
        {"agent": {"service": {"internalTrafficPolicy": "Local"}}},
        "- agent.service.internalTrafficPolicy: clients of a headless Service choose a pod themselves.",
    ),
    "agents that are stopped and added": (
        {"agent": {"updateStrategy": {"rollingUpdate": {"maxSurge": 1}}}},
        "- agent.updateStrategy.rollingUpdate.maxSurge: with it maxUnavailable must be 0.",
    ),
    "agents that cannot be replaced": (
        {"agent": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": "0%"}}}},
        "- agent.updateStrategy.rollingUpdate.maxUnavailable: with 0 and maxSurge 0 no agent could be replaced.",
    ),
    "two agents of one port": (
        {"agent": {"hostNetwork": True, "updateStrategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}}},
        "rollingUpdate.maxSurge: with agent.hostNetwork two agents of a node cannot have one port.",
    ),
    "two hostengines of one node": (
        {
            "agent": {
                "profiling": {"hostengine": "sidecar"},
                "updateStrategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            }
        },
        "with agent.profiling.hostengine sidecar two hostengines of a node would compete for profiling.",
    ),
    "a limit below the request": (
        {"agent": {"resources": {"limits": {"memory": "32Mi"}}}},
        "- agent.resources.limits.memory: 32Mi is below the request of 48Mi.",
    ),
    "privileges that cannot be denied": (
        {"agent": {"securityContext": {"privileged": True}}},
        "- agent.securityContext.privileged: a privileged container can always gain privileges.",
    ),
    "root that is not root": (
        {"agent": {"securityContext": {"runAsNonRoot": True}}},
        "- agent.securityContext.runAsNonRoot: runAsUser is 0, which is root.",
    ),
    "a label of a selector": (
        {"agent": {"podLabels": {"app.kubernetes.io/component": "exporter"}}},
        "- agent.podLabels: the label app.kubernetes.io/component belongs to the chart",
    ),
    "a label that is too long": (
        {"commonLabels": {"team": "x" * 64}},
        "commonLabels.team: Does not match pattern",
    ),
    "a name of a label that is none": (
        {"agent": {"podLabels": {"our team": "gpu"}}},
        'agent.podLabels: Property name of "our team" does not match',
    ),
    "a toleration of every value of a taint": (
        {"analyzer": {"tolerations": [{"key": "gpu", "operator": "Exists", "value": "yes"}]}},
        '- analyzer.tolerations: operator Exists has no value, but "yes" is given.',
    ),
    "a volume of the chart": (
        {"agent": {"extraHostVolumes": [{"name": "proc", "hostPath": "/proc"}]}},
        "- agent.extraVolumes: proc is there twice, or is the chart's own.",
    ),
    "a mount of the chart": (
        {
            "analyzer": {
                "extraVolumes": [{"name": "more", "emptyDir": {}}],
                "extraVolumeMounts": [{"name": "more", "mountPath": "/var/lib/gpusteward"}],
            }
        },
        "- analyzer.extraVolumeMounts: /var/lib/gpusteward is there twice, or is the chart's own.",
    ),
    "a name that no Service may have": (
        {"fullnameOverride": "1_gpus"},
        '- fullnameOverride: "1_gpus" is no name of a Service.',
    ),
    "an address as a host": (
        {"analyzer": {"ingress": {"enabled": True, "hosts": ["https://gpus.example.com"]}}},
        '- analyzer.ingress.hosts: "https://gpus.example.com" is no host name.',
    ),
    "a path without a slash": (
        {"analyzer": {"ingress": {"enabled": True, "hosts": ["gpus.example.com"], "path": "gpus"}}},
        '- analyzer.ingress.path: "gpus" does not begin with a slash.',
    ),
    "a budget of all replicas": (
        {
            "analyzer": {
                "replicas": 2,
                "postgresql": {"url": "postgresql://db/gpus"},
                "podDisruptionBudget": {"enabled": True, "minAvailable": 2},
            }
        },
        "- analyzer.podDisruptionBudget.minAvailable: 2 of 2 replicas would block every drain of their nodes.",
    ),
    "a time-out longer than the interval": (
        {"serviceMonitor": {"interval": "1m", "scrapeTimeout": "90s"}},
        "- serviceMonitor.scrapeTimeout: 90s is longer than the interval of 1m, which the Prometheus Operator rejects.",
    ),
    "labels of a Service that PodMonitors do not have": (
        {"podMonitor": {"enabled": True}, "serviceMonitor": {"targetLabels": ["team"]}},
        "- serviceMonitor.targetLabels: PodMonitors have no Service. Use podTargetLabels.",
    ),
    "PodMonitors that are switched off": (
        {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": False}},
        "- podMonitor.enabled: serviceMonitor.enabled is false, which switches both off.",
    ),
    "a ServiceMonitor without a Service": (
        {"analyzer": {"enabled": False}, "agent": {"service": {"enabled": False}}, "serviceMonitor": {"enabled": True}},
        "- agent.service.enabled: a ServiceMonitor finds agents by their Service.",
    ),
    "a ServiceMonitor without a token": (
        {"serviceMonitor": {"enabled": True}},
        "- analyzer.tokens.existingSecret: Prometheus scrapes the analyzer with the viewer's token, and there is none: "
        "without a cluster (helm template, Argo CD) no token is created",
    ),
    "one job of two programs": (
        {"serviceMonitor": {"jobLabel": "app.kubernetes.io/name"}},
        "- serviceMonitor.jobLabel: app.kubernetes.io/name has one value for agents and analyzer",
    ),
    "HTTPS of the analyzer without a certificate": (
        {"analyzer": {"tlsServerConfig": {"enabled": True}}},
        "- analyzer.tlsServerConfig.existingSecret: HTTPS needs a certificate.",
    ),
    "HTTPS of the analyzer twice": (
        {
            "analyzer": {
                "tlsServerConfig": {"enabled": True, "existingSecret": "tls"},
                "config": {"server": {"web_config_file": "/etc/web.yaml"}},
            }
        },
        "- analyzer.config.server.web_config_file: analyzer.tlsServerConfig makes this file.",
    ),
    "a probe without a period": (
        {"agent": {"livenessProbe": {"periodSeconds": 0}}},
        "agent.livenessProbe.periodSeconds: Must be greater than or equal to 1",
    ),
    "not a hostengine": ({"agent": {"dcgmHostengine": "5555"}}, '- agent.dcgmHostengine: "5555" is not an address.'),
    "not a duration": ({"serviceMonitor": {"interval": "15"}}, '- serviceMonitor.interval: "15" is not a duration.'),
    "not a size": (
        {"analyzer": {"persistence": {"size": "5 GB"}}},
        '- analyzer.persistence.size: "5 GB" is not a size.',
    ),
    "not PostgreSQL": (
        {"analyzer": {"postgresql": {"url": "mysql://db"}}},
        "- analyzer.postgresql.url: this is not an address of PostgreSQL.",
    ),
    "an unknown value": ({"agents": {}}, "Additional property agents is not allowed"),
    "an unknown value below": ({"agent": {"nodeselector": {}}}, "Additional property nodeselector is not allowed"),
    "an unknown setting": (
        {"analyzer": {"config": {"thresholds": {"idel": 5}}}},
        "Additional property idel is not allowed",
    ),
    "an unknown secret": (
        {"analyzer": {"secretKeyRefs": {"ai.key": {"name": "a", "key": "b"}}}},
        "Additional property ai.key is not allowed",
    ),
    "a wrong choice": (
        {"reclaim": {"mode": "write"}},
        'reclaim.mode must be one of the following: "off", "observe", "enforce"',
    ),
    "a wrong type": (
        {"agent": {"enabled": "yes"}},
        "agent.enabled: Invalid type. Expected: boolean, given: string",
    ),
    "a label that is not text": (
        {"agent": {"nodeSelector": {"gpu": True}}},
        "agent.nodeSelector.gpu: Invalid type. Expected: string, given: boolean",
    ),
    "a setting out of bounds": (
        {"analyzer": {"config": {"thresholds": {"idle": 200}}}},
        "analyzer.config.thresholds.idle: Must be less than or equal to 100",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_values_that_cannot_work_are_refused_in_plain_words(case: str, helm: Helm):
    values, text = REFUSED[case]
    with pytest.raises(HelmError) as refused:
        helm.template(CHART, values)
    assert text in re.sub(r"\s+", " ", str(refused.value))


@pytest.mark.parametrize("name", [*VALUE_SETS, "nothing set"])
def test_two_renderings_of_the_same_values_are_equal(name: str, helm: Helm):
    """Otherwise a tool that renders charts, such as Argo CD, changes secrets with every rendering."""
    values = read_yaml(VALUE_SETS[name].read_text()) if name in VALUE_SETS else {}
    first, second = (helm.run("template", "gpusteward", CHART, values=values) for _ in range(2))
    assert first == second


def test_tokens_that_are_given_are_rendered(helm: Helm):
    tokens = {role: f"{role}-0123456789abcdef" for role in ("viewer", "operator")}
    objects = helm.template(CHART, {"analyzer": {"tokens": tokens}, "serviceMonitor": {"enabled": True}})
    (secret,) = [each for each in objects if each["kind"] == "Secret"]
    text = base64.b64decode(secret["data"]["tokens.yaml"]).decode()
    assert text == f"viewer: {tokens['viewer']}\noperator: {tokens['operator']}\n# admin: TOKEN\n"


def find_alert(objects: list[Json], name: str) -> str:
    rules = [each for each in objects if each["kind"] == "PrometheusRule"]
    alerts = [rule for each in rules for group in each["spec"]["groups"] for rule in group["rules"]]
    (found,) = [str(rule["expr"]) for rule in alerts if rule.get("alert") == name]
    return found


def test_alerts_follow_the_job_label(helm: Helm):
    values = read_yaml(VALUE_SETS["https"].read_text())
    assert 'up{job=~"(.+/)?agent"} == 0' in find_alert(helm.template(CHART, values), "GpuAgentDown")
    own = {
        "agent": {"service": {"labels": {"job": "gpus"}}},
        "serviceMonitor": {**values["serviceMonitor"], "jobLabel": "job"},
    }
    objects = helm.template(CHART, {**values, **own}, release="gpusteward-prod")
    assert 'up{job=~"(.+/)?gpus"} == 0' in find_alert(objects, "GpuAgentDown")
    assert 'up{job=~"(.+/)?gpusteward-prod-analyzer"} == 0' in find_alert(objects, "GpustewardAnalyzerDown"), "no label"


def test_monitors_have_what_values_say_about_jobs_labels_and_limits(rendered: dict[str, list[Json]]):
    monitors = {
        each["metadata"]["name"]: each["spec"] for each in rendered["https"] if each["kind"] == "ServiceMonitor"
    }
    for spec in monitors.values():
        assert spec["jobLabel"] == "app.kubernetes.io/component"
        assert spec["targetLabels"] == ["app.kubernetes.io/version"]
        assert spec["podTargetLabels"] == ["team"]
        assert spec["sampleLimit"] == 20000
    (endpoint,) = monitors["gpusteward-analyzer"]["endpoints"]
    assert (endpoint["port"], endpoint["scheme"]) == ("https", "https")
    ca = {"secret": {"name": "gpusteward-analyzer-tls", "key": "ca.crt"}}
    assert endpoint["tlsConfig"] == {"serverName": "gpusteward-analyzer.gpusteward.svc", "ca": ca}
    assert "tlsConfig" not in monitors["gpusteward-agent"]["endpoints"][0]


def test_two_analyzers_prefer_two_nodes_unless_the_affinity_is_given(helm: Helm, rendered: dict[str, list[Json]]):
    def read_affinity(objects: list[Json]) -> Json | None:
        (deployment,) = [each for each in objects if each["kind"] == "Deployment"]
        return deployment["spec"]["template"]["spec"].get("affinity")

    (term,) = read_affinity(rendered["postgresql"])["podAntiAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    assert term["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert term["podAffinityTerm"]["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == "analyzer"
    assert read_affinity(rendered["default"]) is None
    values = read_yaml(VALUE_SETS["postgresql"].read_text())
    values["analyzer"]["affinity"] = {"nodeAffinity": {}}
    assert read_affinity(helm.template(CHART, values)) == {"nodeAffinity": {}}


def test_an_egress_policy_allows_what_it_names_and_dns_and_the_agents(rendered: dict[str, list[Json]]):
    policies = {
        each["metadata"]["name"]: each["spec"] for each in rendered["enforce"] if each["kind"] == "NetworkPolicy"
    }
    for spec in policies.values():
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        assert [each["port"] for each in spec["egress"][0]["ports"]] == [53, 53]
        assert spec["egress"][1]["to"] == [{"ipBlock": {"cidr": "10.0.0.1/32"}}]
    assert len(policies["gpusteward-agent"]["egress"]) == 2
    agents = policies["gpusteward-analyzer"]["egress"][2]
    assert agents["ports"] == [{"port": "metrics"}]
    labels = agents["to"][0]["podSelector"]["matchLabels"]
    assert labels.items() <= policies["gpusteward-agent"]["podSelector"]["matchLabels"].items()


def test_all_mistakes_are_reported_at_once(helm: Helm):
    with pytest.raises(HelmError, match=r"These values cannot work:\n- [^\n]+\n- "):
        helm.template(CHART, {"prometheus": {"url": "x"}, "analyzer": {"replicas": 2}})


def test_a_refused_password_is_not_repeated(helm: Helm):
    with pytest.raises(HelmError) as refused:
        helm.template(CHART, {"analyzer": {"postgresql": {"url": "mysql://me:hunter2@db"}}})
    assert "hunter2" not in str(refused.value)
