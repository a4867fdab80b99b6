"""The helm of the tests is the pinned one, apart from the user's own, and works with the real API server."""

import re
from pathlib import Path

import pytest

from tests.deploy.helm import Helm, HelmError
from tests.kubernetes.cluster import Cluster

pytestmark = pytest.mark.slow


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """A chart of one ConfigMap."""
    folder = tmp_path / "one"
    (folder / "templates").mkdir(parents=True)
    (folder / "Chart.yaml").write_text("apiVersion: v2\nname: one\nversion: 1.0.0\n")
    (folder / "values.yaml").write_text("word: first\n")
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {word: {{ .Values.word | quote }}}\n"
    (folder / "templates/map.yaml").write_text(text)
    return folder


def test_it_is_the_pinned_version(helm: Helm):
    assert re.match(r"v3\.17\.3\b", helm.run("version", "--short"))


def test_its_folders_are_its_own(helm: Helm):
    lines = dict(line.split("=", 1) for line in helm.run("env").splitlines())
    folders = [lines[f"HELM_{name}_HOME"].strip('"') for name in ("CACHE", "CONFIG", "DATA")]
    assert all(folder.startswith(str(helm.folder)) for folder in folders)
    assert lines["HELM_REPOSITORY_CONFIG"].strip('"').startswith(str(helm.folder))


def test_it_reaches_no_cluster_unless_asked(helm: Helm):
    with pytest.raises(HelmError, match="unreachable"):
        helm.run("list")


def test_it_renders_with_the_values_of_the_test(helm: Helm, chart: Path):
    (rendered,) = helm.template(chart, {"word": "second"})
    assert rendered["data"] == {"word": "second"}


def test_it_installs_and_uninstalls_on_the_control_plane(helm: Helm, kubernetes: Cluster, chart: Path):
    namespace, admin = kubernetes.add_namespace(), helm.using(kubernetes)
    map_there = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": namespace}}
    admin.run("install", "one", chart, "--namespace", namespace)
    assert kubernetes.exists(map_there)
    admin.run("uninstall", "one", "--namespace", namespace)
    assert not kubernetes.exists(map_there)
