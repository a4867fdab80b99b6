"""The release for krew: its manifest follows krew's rules, and its archive runs without anything installed."""

import hashlib
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from deploy.krew.package import main
from gpusteward import __version__
from tests.cli.kubectl.fake_kubectl import UNREACHABLE, write_kubectl

pytestmark = pytest.mark.slow
URL = "https://example.com/releases/v1"
PLUGIN_KEYS = {"version", "shortDescription", "description", "caveats", "homepage", "platforms"}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("krew")
    main(folder, f"{URL}/")
    with tarfile.open(folder / "kubectl-gpusteward.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def test_the_manifest_follows_the_rules_of_krew(release: Path) -> None:
    plugin = yaml.safe_load((release / "gpusteward.yaml").read_text())
    assert plugin["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert (plugin["kind"], plugin["metadata"]) == ("Plugin", {"name": "gpusteward"})
    spec = plugin["spec"]
    assert set(spec) <= PLUGIN_KEYS
    assert spec["version"] == f"v{__version__}"
    assert re.fullmatch(r"v\d+\.\d+\.\d+(-[\w.]+)?", spec["version"])
    assert 0 < len(spec["shortDescription"]) <= 50
    assert not spec["shortDescription"].endswith(".")
    assert "kubectl gpusteward idle" in spec["description"]
    (platform,) = spec["platforms"]
    assert set(platform) == {"selector", "uri", "sha256", "bin", "files"}
    assert platform["uri"] == f"{URL}/kubectl-gpusteward.tar.gz"
    archive = (release / "kubectl-gpusteward.tar.gz").read_bytes()
    assert platform["sha256"] == hashlib.sha256(archive).hexdigest()
    assert all((release / each["from"]).exists() for each in platform["files"])
    assert platform["bin"] in [each["from"] for each in platform["files"]]


def run(release: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """With the Python of the tests, but without its libraries."""
    command = [sys._base_executable, "-I", "-S", str(release / "kubectl-gpusteward"), *words]  # type: ignore[attr-defined]
    environ = {"HOME": str(release), "LANG": "C.UTF-8", "PATH": str(release)}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environ)


def test_it_runs_without_installed_libraries(release: Path) -> None:
    assert os.access(release / "kubectl-gpusteward", os.X_OK)
    done = run(release, "--version")
    assert (done.returncode, done.stdout) == (0, f"kubectl gpusteward {__version__}\n"), done.stderr
    write_kubectl(release, UNREACHABLE)
    for command in (["idle"], ["top"], ["report"]):
        done = run(release, *command)
        assert done.returncode == 1
        assert "cannot connect to the API server of the kubeconfig (dial tcp: lost)" in done.stderr


def test_the_terminal_ui_is_in_it(release: Path) -> None:
    program = f"import sys; sys.path.insert(0, {str(release / 'kubectl-gpusteward')!r}); import gpusteward.cli.top.app"
    command = [sys._base_executable, "-I", "-S", "-c", program]  # type: ignore[attr-defined]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_the_same_installation_gives_the_same_bytes(release: Path, tmp_path: Path) -> None:
    main(tmp_path, URL)
    name = "kubectl-gpusteward.tar.gz"
    assert (tmp_path / name).read_bytes() == (release / name).read_bytes()
