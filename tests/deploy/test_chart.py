"""The chart renders as the golden files say, with the settings and flags that the code has."""

import os
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.chart.generate import FILES
from tests.deploy.conftest import VALUE_SETS
from tests.deploy.helm import CHART, Helm
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
