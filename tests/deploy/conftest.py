"""What the tests of the chart share."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import give_up
from tests.deploy.helm import CHART, ROOT, Helm
from tests.kubernetes.cluster import ApiError, Cluster, wait_for
from tests.yaml_texts import read_yaml

VALUE_SETS = {path.stem.removesuffix("-values"): path for path in sorted(CHART.glob("ci/*-values.yaml"))}


@pytest.fixture(scope="session")
def rendered(helm: Helm) -> dict[str, list[dict[str, Any]]]:
    """The objects of every set of values in ci/."""
    return {
        name: helm.template(CHART, read_yaml(path.read_text()), "-n", "gpusteward") for name, path in VALUE_SETS.items()
    }


@pytest.fixture(scope="session")
def extended(kubernetes: Cluster) -> Cluster:
    """The control plane with the Prometheus Operator's, the Gateway API's and OpenShift's own definitions.

    They stay until it ends, as tests of other processes may use them: what depends on them says so in its values.
    """
    where = subprocess.run([ROOT / ".ci/crds", "path"], capture_output=True, text=True, check=True)
    files = sorted(Path(where.stdout.strip()).glob("*.yaml"))
    if not files:
        give_up("the definitions of custom resources are missing; `make components` downloads them")
    for definition in (read_yaml(path.read_text()) for path in files):
        kubernetes.apply(definition)
        names, spec = definition["spec"]["names"], definition["spec"]
        version = next(each["name"] for each in spec["versions"] if each["storage"])
        wait_for(lambda path=f"/apis/{spec['group']}/{version}/{names['plural']}": can_list(kubernetes, path))
    return kubernetes


def can_list(cluster: Cluster, path: str) -> bool:
    try:
        cluster.request("GET", f"{path}?limit=1")
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return True
