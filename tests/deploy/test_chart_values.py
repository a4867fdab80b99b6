"""Values of the chart and settings of the code cannot drift apart, and values that cannot work are refused."""

import argparse
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.chart.generate import SECRETS
from deploy.chart.value_comments import read_values, walk
from gpusteward import __version__
from gpusteward.agent.settings.table import SETTINGS, read_settings
from gpusteward.analyzer.reclaim.policies.file import parse_policies
from gpusteward.analyzer.settings.effective import KNOWN
from gpusteward.analyzer.settings.file import SettingsFile
from gpusteward.analyzer.settings.flags import add_settings_flags, flags_from
from gpusteward.analyzer.settings.layers import variable_of
from gpusteward.analyzer.sources.owners.owner_kinds import OWNER_KINDS
from gpusteward.analyzer.sources.owners.owner_resolver import plural_of
from tests.deploy.conftest import VALUE_SETS
from tests.deploy.helm import CHART, ROOT, Helm, HelmError
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
        command, *flags = container["args"]
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
    assert set(list_leaves(schema)) == set(KNOWN)


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
    measured = [each["agent"] for each in json.loads((ROOT / "bench/results/agent.json").read_text())["comparisons"]]
    peak = max(each["memory"]["scraped"]["peak"] for each in measured) * 1024
    assert peak <= read_quantity(resources["requests"]["memory"])
    assert 2 * peak <= read_quantity(resources["limits"]["memory"])
    shares = [share for each in measured for share in (*each["scraped_shares"], *each["idle_shares"]["5 s"])]
    assert max(shares) <= read_quantity(resources["requests"]["cpu"])
    assert "cpu" not in resources["limits"]


def test_requests_and_limits_of_the_analyzer_follow_from_the_measured_figures():
    resources = read_yaml((CHART / "values.yaml").read_text())["analyzer"]["resources"]
    measured = json.loads((ROOT / "bench/results/analyzer.json").read_text())["served"]
    peaks = [each["after_requests"]["peak"] * 1024 for each in measured]
    assert min(peaks) <= read_quantity(resources["requests"]["memory"]), "of a small site"
    assert 2 * max(peaks) <= read_quantity(resources["limits"]["memory"]), "of the largest"


def test_every_file_of_rules_can_be_switched_off():
    switches = {key for key, value in read_values()["prometheusRule"].children.items() if value.default is True}
    assert {path.stem for path in CHART.glob("files/rules/*.yaml")} == switches


def test_the_larger_role_patches_known_kinds_and_deletes_nothing():
    rules = read_yaml((CHART / "files/rbac/enforce.yaml").read_text())
    owners = {(group, plural_of(kind)) for group, kinds in OWNER_KINDS.items() for kind in kinds}
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


REFUSED = {
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
        {"agent": {"basicAuth": {"users": {"prometheus": "secret"}}}},
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
        {"rbac": {"mode": "write"}},
        'rbac.mode must be one of the following: "observe", "enforce"',
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


def test_all_mistakes_are_reported_at_once(helm: Helm):
    with pytest.raises(HelmError, match=r"These values cannot work:\n- [^\n]+\n- "):
        helm.template(CHART, {"prometheus": {"url": "x"}, "analyzer": {"replicas": 2}})


def test_a_refused_password_is_not_repeated(helm: Helm):
    with pytest.raises(HelmError) as refused:
        helm.template(CHART, {"analyzer": {"postgresql": {"url": "mysql://me:hunter2@db"}}})
    assert "hunter2" not in str(refused.value)
