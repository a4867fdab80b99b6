"""What the tests of the chart share."""

from typing import Any

import pytest
import yaml

from tests.deploy.helm import CHART, Helm

VALUE_SETS = {path.stem.removesuffix("-values"): path for path in sorted(CHART.glob("ci/*-values.yaml"))}


@pytest.fixture(scope="session")
def rendered(helm: Helm) -> dict[str, list[dict[str, Any]]]:
    """The objects of every set of values in ci/."""
    return {
        name: helm.template(CHART, yaml.safe_load(path.read_text()), "-n", "gpusteward")
        for name, path in VALUE_SETS.items()
    }
