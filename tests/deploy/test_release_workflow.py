"""The workflow of a release: what it builds exists, what it runs works, and it has no more rights than it needs."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpusteward import __version__
from tests.conftest import give_up
from tests.deploy.helm import CHART, ROOT, Helm, Json
from tests.yaml_texts import read_yaml

WORKFLOWS = ROOT / ".github/workflows"
RELEASE = read_yaml((WORKFLOWS / "release.yml").read_text())
JOBS: dict[str, Any] = RELEASE["jobs"]
DOCKERFILE = (ROOT / "deploy/images/Dockerfile").read_text()
TEXT = (WORKFLOWS / "release.yml").read_text()


def list_steps(job: str) -> list[dict[str, Any]]:
    return list(JOBS[job]["steps"])


def find_step(job: str, name: str) -> dict[str, Any]:
    (found,) = [each for each in list_steps(job) if name in (each.get("name"), each.get("uses", "").partition("@")[0])]
    return found


def list_scripts() -> Iterator[tuple[str, str]]:
    for path in sorted(WORKFLOWS.glob("*.yml")):
        for job, about in read_yaml(path.read_text())["jobs"].items():
            for number, step in enumerate(about["steps"]):
                if "run" in step:
                    yield f"{path.stem}/{job}/{number}", step["run"]


SCRIPTS = dict(list_scripts())


def test_only_a_tag_of_a_version_starts_it():
    assert RELEASE[True] == {"push": {"tags": ["v*.*.*"]}}  # YAML 1.1 reads `on` as true


def test_nothing_is_published_before_all_tests_have_passed():
    assert [step["run"] for step in list_steps("check") if "run" in step][-1] == "make ci"
    for name, job in JOBS.items():
        needs = job.get("needs", [])
        assert name == "check" or "check" in ([needs] if isinstance(needs, str) else needs)
        assert name == "check" or job["environment"] == "release"


def test_a_job_may_write_only_what_it_publishes():
    assert RELEASE["permissions"] == {"contents": "read"}
    rights = {name: job.get("permissions", {}) for name, job in JOBS.items()}
    signs = {"contents": "read", "id-token": "write"}
    package = {"contents": "write", "id-token": "write"}
    assert rights == {"check": {}, "images": signs, "chart": signs, "package": package}
    checkouts = [
        step for name in JOBS for step in list_steps(name) if step.get("uses", "").startswith("actions/checkout")
    ]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_every_image_is_built_for_both_architectures_with_bill_of_materials_provenance_and_signature():
    images = re.findall(r"(?m)^FROM base AS (\w+)$", DOCKERFILE)
    assert sorted(JOBS["images"]["strategy"]["matrix"]["image"]) == sorted(images)
    build = find_step("images", "docker/build-push-action")["with"]
    assert (ROOT / build["file"]).is_file()
    assert build["platforms"].split(",") == ["linux/amd64", "linux/arm64"]
    assert build["sbom"] is True
    assert build["provenance"] == "mode=max"
    arguments = {line.partition("=")[0] for line in build["build-args"].splitlines()}
    assert arguments == set(re.findall(r"(?m)^ARG (\w+)", DOCKERFILE))
    assert "cosign sign" in find_step("images", "Sign")["run"]
    assert "@$DIGEST" in find_step("images", "Sign")["run"], "a tag could be moved between push and signature"


def test_the_images_have_the_names_that_the_chart_uses():
    values = read_yaml((ROOT / "deploy/chart/gpusteward/values.yaml").read_text())
    tag = find_step("images", "docker/build-push-action")["with"]["tags"]
    for image in ("agent", "analyzer"):
        assert f"/{values[image]['image']['repository']}:" in tag.replace("${{ matrix.image }}", image)


def test_the_settings_of_the_repository_are_those_of_the_guide():
    guides = [ROOT / "docs/how-to/images.md", ROOT / "docs/zh-CN/how-to/images.md"]
    wanted = set(re.findall(r"(?:secrets|vars)\.(\w+)", TEXT))
    assert wanted == {"IMAGE_REGISTRY", "REGISTRY_USERNAME", "REGISTRY_PASSWORD"}
    assert all(name in path.read_text() for path in guides for name in wanted)


def test_secrets_and_texts_of_others_reach_scripts_as_variables_only():
    assert [name for name, script in SCRIPTS.items() if "${{" in script] == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_is_valid_and_uses_targets_and_files_that_exist(name: str):
    script = SCRIPTS[name]
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    targets = re.findall(r"(?m)^(?:.*&& )?make ([a-z-]+)", script)
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"(?m)^{target}:", makefile) for target in targets)
    files = re.findall(r"(?<![\w/.])((?:deploy|requirements|\.ci)/[\w./-]+)", script)
    assert all((ROOT / path).exists() for path in files), files


@pytest.mark.slow
def test_actionlint_finds_nothing_in_any_workflow(tmp_path: Path):
    where = subprocess.run([ROOT / ".ci/actionlint", "path"], capture_output=True, text=True, check=True)
    program = Path(where.stdout.strip()) / "actionlint"
    if not program.exists():
        give_up("actionlint is not built; `make components` builds it")
    command = [program, "-shellcheck=", "-pyflakes="]  # where they are installed it would use them
    careless = tmp_path / "careless.yml"
    careless.write_text(
        "on: push\njobs: {a: {runs-on: ubuntu-24.04, steps: [{run: 'echo ${{ steps.b.outputs.c }}'}]}}\n"
    )
    found = subprocess.run([*command, careless], capture_output=True, text=True, check=False, timeout=60)
    assert 'property "b" is not defined' in found.stdout
    done = subprocess.run(
        [*command, *sorted(WORKFLOWS.glob("*.yml"))], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "")


def run_step(step: dict[str, Any], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "GITHUB_OUTPUT": str(folder / "output"), **variables}
    command = ["bash", "-eo", "pipefail", "-c", step["run"]]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=120)


def test_a_tag_that_is_not_the_version_or_not_in_the_changelog_ends_the_release(tmp_path: Path):
    step = find_step("check", "The tag is the version of the package")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "CHANGELOG.md").write_text("## [Unreleased]\n")
    assert "the tag is v9.9.9" in run_step(step, tmp_path, GITHUB_REF_NAME="v9.9.9").stderr
    assert "no entry of" in run_step(step, tmp_path, GITHUB_REF_NAME=f"v{__version__}").stderr
    assert not (tmp_path / "output").exists()
    (tmp_path / "CHANGELOG.md").write_text(f"## [{__version__}] - 2026-01-01\n")
    done = run_step(step, tmp_path, GITHUB_REF_NAME=f"v{__version__}")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "output").read_text() == f"version={__version__}\n"


REGISTRY = "registry.example.com:5000/gpu"


@pytest.fixture
def packaged(tmp_path: Path) -> Path:
    """The chart that the release pushes to the registry."""
    for part in ("deploy/chart/gpusteward", ".ci"):
        shutil.copytree(ROOT / part, tmp_path / part)
    done = run_step(find_step("chart", "Package"), tmp_path, IMAGE_REGISTRY=REGISTRY, VERSION=__version__)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "deploy/chart/gpusteward/values.yaml").read_text() == (CHART / "values.yaml").read_text()
    made = tmp_path / f".build/chart/gpusteward-{__version__}.tgz"
    pushed = find_step("chart", "Push and sign")["run"].replace("$VERSION", __version__)
    assert f'"{made.relative_to(tmp_path)}"' in pushed
    return made


@pytest.mark.slow
def test_a_released_chart_uses_the_images_of_the_registry_it_was_released_with(helm: Helm, packaged: Path):
    """And is otherwise the chart of the repository."""
    values: Json = {"analyzer": {"tokens": {"generate": False}}}
    assert helm.template(packaged, values) == helm.template(CHART, {**values, "global": {"imageRegistry": REGISTRY}})
    mirror = {**values, "global": {"imageRegistry": "mirror.example.com"}}
    assert helm.template(packaged, mirror) == helm.template(CHART, mirror)


@pytest.mark.slow
def test_a_released_chart_says_how_to_install_it_from_there(helm: Helm, packaged: Path):
    about = helm.run("show", "all", packaged)
    assert f"helm install gpusteward oci://{REGISTRY}/charts/gpusteward --version {__version__} " in about
    assert "deploy/chart" not in about
    assert "$REGISTRY" not in about
    images = re.findall(r"image: (\S+):[\d.]+$", about, re.MULTILINE)
    assert images == [f"{REGISTRY}/gpusteward-agent", f"{REGISTRY}/gpusteward-analyzer"]
    assert f'oci://{REGISTRY}/charts"' in find_step("chart", "Push and sign")["run"].replace(
        "$IMAGE_REGISTRY", REGISTRY
    )


def test_every_action_is_pinned_by_its_commit_with_the_version_beside_it():
    """Whoever can move a tag of an action could sign and publish in our name."""
    lines = [line for path in WORKFLOWS.glob("*.yml") for line in path.read_text().splitlines() if "uses:" in line]
    loose = [line for line in lines if not re.search(r"uses: [\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line)]
    assert loose == []
    pins = {line.partition("uses: ")[2] for line in lines}
    assert len(pins) == len({pin.partition("@")[0] for pin in pins}), "one version of each"


def test_base_images_are_named_by_their_digests(tmp_path: Path):
    (tmp_path / "deploy/images").mkdir(parents=True)
    shutil.copy(ROOT / "deploy/images/Dockerfile", tmp_path / "deploy/images")
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\n[ "$1 $2 $3" = "buildx imagetools inspect" ] && echo "sha256:of-$4"\n')
    docker.chmod(0o755)
    step = find_step("images", "The base images by their digests")
    done = run_step(step, tmp_path, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "output").read_text().splitlines()
    assert len(lines) == 2
    for line in lines:
        name, _, value = line.partition("=")
        image, _, tag = re.search(rf"(?m)^ARG {name}=(\S+)$", DOCKERFILE)[1].partition(":")
        assert value == f"{image}@sha256:of-{image}:{tag}"
        assert f"{name}=${{{{ steps.base.outputs.{name} }}}}" in TEXT
