"""The fixture `helm`: the real helm, with folders of its own for cache, settings and data.

def test_it(helm: Helm, kubernetes: Cluster) -> None:
    objects = helm.template(CHART, {"agent": {"enabled": False}})
    cluster_helm = helm.using(kubernetes)
    cluster_helm.run("install", "gpusteward", CHART, "--namespace", kubernetes.add_namespace())
"""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import give_up
from tests.kubernetes.cluster import Cluster
from tests.yaml_texts import read_all_yaml

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy/chart/gpusteward"
TIMEOUT_SECONDS = 180


class HelmError(Exception):
    """helm failed; the message is what it wrote to its standard error."""


@dataclass(frozen=True)
class Helm:
    """helm without a cluster, unless it comes from `using`."""

    program: Path
    folder: Path
    kubeconfig: Path | None = None

    def using(self, cluster: Cluster) -> "Helm":
        """helm as the administrator of this cluster."""
        return replace(self, kubeconfig=cluster.kubeconfig)

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment of a run: nothing of the user's own helm settings and clusters."""
        folders = {f"HELM_{name}_HOME": str(self.folder / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
        kubeconfig = str(self.kubeconfig or os.devnull)
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder), "KUBECONFIG": kubeconfig, **folders}

    def run(self, *words: str | Path, values: Json | None = None) -> str:
        """The standard output of a helm command; `values` are passed as a values file. Raises HelmError."""
        command = [self.program, *words]
        if values is not None:
            command += ["--values", "-"]
        done = subprocess.run(
            command,
            input=None if values is None else yaml.safe_dump(values),
            env=dict(self.environ),
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_SECONDS,
        )
        if done.returncode:
            raise HelmError(done.stderr)
        return done.stdout

    def template(self, chart: Path, values: Json | None = None, *words: str, release: str = "gpusteward") -> list[Json]:
        """The objects that a chart renders with these values, in helm's order. Raises HelmError."""
        text = self.run("template", release, chart, *words, values=values or {})
        return read_all_yaml(text)


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    where = subprocess.run([ROOT / ".ci/helm", "path"], capture_output=True, text=True, check=True)
    program = Path(where.stdout.strip()) / "helm"
    if not program.exists():
        give_up("helm is not installed; `make components` installs it")
    return Helm(program, tmp_path_factory.mktemp("helm"))
