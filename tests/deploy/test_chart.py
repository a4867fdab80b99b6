"""The chart renders as the golden files say, with the settings and flags that the code has."""

import os
import re
import shlex
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.chart.generate import FILES
from tests.deploy.conftest import VALUE_SETS
from tests.deploy.helm import CHART, ROOT, Helm
from tests.yaml_texts import read_yaml

GOLDEN = Path(__file__).parent / "golden/chart"
OBSERVE = read_yaml((CHART / "files/rbac/observe.yaml").read_text())
Json = dict[str, Any]


@pytest.mark.parametrize("name", FILES)
def test_a_generated_file_matches_values_and_code(name: str):
    assert (CHART / name).read_text(encoding="utf-8") == FILES[name](), "stale: run `make chart`"


def test_helm_lint_finds_nothing(helm: Helm):
    done = helm.run("lint", "--strict", CHART)
    assert "0 chart(s) failed" in done
    assert "[WARNING]" not in done


def test_there_are_at_least_twelve_sets_of_values():
    assert len(VALUE_SETS) >= 12


@pytest.mark.parametrize("name", VALUE_SETS)
def test_a_set_of_values_renders_as_its_golden_file(name: str, rendered: dict[str, list[Json]]):
    text = yaml.safe_dump_all(map(shorten, deepcopy(rendered[name])), sort_keys=True, width=140)
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("GPUSTEWARD_WRITE_GOLDEN") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def shorten(item: Json) -> Json:
    """Without the labels that all objects have, the version, and files that have tests of their own."""
    for each in (item, item.get("spec", {}).get("template", {})):
        labels = each.get("metadata", {}).get("labels", {})
        for label in ("version", "managed-by", "name", "instance"):
            labels.pop(f"app.kubernetes.io/{label}", None)
        labels.pop("helm.sh/chart", None)
    if item["kind"] == "ClusterRole":
        item["rules"] = [rule for rule in item["rules"] if rule not in OBSERVE]
    if item["kind"] == "PrometheusRule":
        item["spec"] = {"groups": "files/rules"}
    if item["metadata"].get("labels", {}).get("app.kubernetes.io/component") == "dashboards":
        item["data"] = sorted(item["data"])
    for container in item.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
        container["image"] = container["image"].removesuffix(":0.1.0")
    return item


def list_verbs(objects: list[Json]) -> set[str]:
    """What the programs may do; roles without a binding are there for people."""
    bound = {(each["kind"], each["metadata"]["name"]): each for each in objects if each["kind"].endswith("Binding")}
    roles = {(kind.removesuffix("Binding"), each["roleRef"]["name"]) for (kind, _), each in bound.items()}
    granted = [each for each in objects if (each["kind"], each["metadata"]["name"]) in roles]
    return {verb for each in granted for rule in each["rules"] for verb in rule["verbs"]}


@pytest.mark.parametrize("namespaces", [[], ["team"]], ids=["everywhere", "in-namespaces"])
@pytest.mark.parametrize("folder", ["docs", "docs/zh-CN"])
def test_the_documented_full_stop_takes_every_right_to_write_away(helm: Helm, folder: str, namespaces: list[str]):
    guide = (ROOT / folder / "how-to/reclaim.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"(?m)^helm upgrade gpusteward deploy/chart/gpusteward (?:.*\\\n)*.*$", guide)
    words = shlex.split(command)
    flags = [f"--set={value}" for word, value in pairwise(words) if word == "--set"]
    values = read_yaml(VALUE_SETS["enforce"].read_text())
    values["reclaim"]["namespaces"] = namespaces
    assert {"patch", "create"} <= list_verbs(helm.template(CHART, values))
    assert list_verbs(helm.template(CHART, values, *flags)) == {"get", "list", "watch"}
    names = {each["metadata"]["name"] for each in helm.template(CHART, values) if each["kind"] == "Deployment"}
    (scaled,) = re.findall(r"(?m)^kubectl .*scale deployment/(\S+) --replicas=0", guide)
    assert scaled in names
