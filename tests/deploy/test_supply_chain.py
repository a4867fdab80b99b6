"""Nothing unpinned is fetched for the images, and each has a bill of materials."""

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.documents import ROOT

DOCKERFILE = (ROOT / "deploy/images/Dockerfile").read_text()
COMMANDS = DOCKERFILE.replace("\\\n", " ")
SCRIPT = ROOT / "deploy/images/make_sbom.py"
IMAGES = ("agent", "analyzer", "demo")


def read_names(requirements: str) -> set[str]:
    return set(re.findall(r"(?m)^([a-z0-9-]+)==", (ROOT / f"requirements/{requirements}.txt").read_text()))


def run_sbom(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, *words], capture_output=True, text=True, check=False, timeout=60, cwd=ROOT
    )


def test_base_images_are_build_arguments():
    assert re.findall(r"(?m)^ARG (\w+_IMAGE)=\S+$", DOCKERFILE) == ["PYTHON_IMAGE", "NODE_IMAGE"]
    images = re.findall(r"(?m)^FROM (?:--platform=\S+ )?(\S+)", DOCKERFILE)
    stages = re.findall(r"(?m)^FROM .+ AS (\S+)", DOCKERFILE)
    assert {each for each in images if each not in stages} == {"${PYTHON_IMAGE}", "${NODE_IMAGE}"}


def test_base_images_are_of_supported_lines_in_their_current_patch_release():
    """Python 3.13 gets security fixes until October 2029, Node 24 until April 2028: the tag of a line has them."""
    (python,) = re.findall(r"(?m)^ARG PYTHON_IMAGE=python:3\.(\d+)-slim$", DOCKERFILE)
    (node,) = re.findall(r"(?m)^ARG NODE_IMAGE=node:(\d+)-slim$", DOCKERFILE)
    assert int(python) >= 13
    assert int(node) >= 22
    assert int(node) % 2 == 0, "odd ones get no long-term support"
    assert "python3." not in DOCKERFILE, "a path with a version is wrong with another base image"


def test_the_web_ui_is_built_on_the_platform_of_the_machine():
    assert re.findall(r"(?m)^FROM --platform=(\S+) \S+ AS (\w+)$", DOCKERFILE) == [("$BUILDPLATFORM", "web")]


def test_whatever_is_fetched_is_pinned_with_its_hash():
    installs = re.findall(r"pip (?:install|wheel) [^&\n]+", COMMANDS)
    assert len(installs) == 8
    for command in installs:
        is_local = "--no-index" in command
        is_locked = "--require-hashes" in command and "--only-binary :all:" in command and " -r " in command
        assert is_local or is_locked, command
    assert not re.search(r"(?m)^ADD |curl|wget|git clone|apt-get|apk |https?://|--(extra-)?index-url", COMMANDS)


def test_the_wheel_is_built_with_locked_dependencies_only():
    assert "--no-build-isolation" in DOCKERFILE
    (backend,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    text = (ROOT / "requirements/build.txt").read_text()
    assert re.match(r"[a-z]+", backend)[0] in read_names("build")
    assert text.count("==") == len(read_names("build"))
    assert all("--hash=sha256:" in block for block in re.split(r"(?m)^(?=[a-z])", text) if block)
    tested = (ROOT / "requirements/dev.txt").read_text()
    assert set(re.findall(r"[0-9a-f]{64}", text)) <= set(re.findall(r"[0-9a-f]{64}", tested))


def test_the_lock_of_the_build_has_all_that_its_backend_needs():
    """By the metadata of the versions that are installed here, which are those of the lock."""
    needed, seen = ["hatchling"], set()
    while needed:
        name = needed.pop()
        seen.add(name)
        wanted = [Requirement(each) for each in requires(name) or ()]
        needed += [each.name for each in wanted if not each.marker or each.marker.evaluate({"extra": ""})]
    assert read_names("build") == seen


@pytest.mark.parametrize("image", IMAGES)
def test_the_bill_of_materials_lists_every_locked_requirement(image: str):
    done = run_sbom(f"gpusteward-{image}", f"requirements/{image}.txt")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", document["serialNumber"])
    components = document["components"]
    assert {each["name"] for each in components} == read_names(image)
    for each in components:
        assert each["purl"] == f"pkg:pypi/{each['name']}@{each['version']}"
        assert each["hashes"]
        assert all(re.fullmatch(r"[0-9a-f]{64}", one["content"]) for one in each["hashes"])
    assert document["dependencies"][0]["dependsOn"] == [each["bom-ref"] for each in components]
    assert len({each["bom-ref"] for each in components}) == len(components)
    assert run_sbom(f"gpusteward-{image}", f"requirements/{image}.txt").stdout == done.stdout


def make_environment(folder: Path, *installed: str) -> Path:
    for each in installed:
        name, version = each.split("==")
        info = folder / f"lib/python3.11/site-packages/{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder


def test_the_bill_of_materials_of_an_image_lists_what_is_installed(tmp_path: Path):
    locked = re.findall(r"(?m)^(numpy==\S+)", (ROOT / "requirements/analyzer.txt").read_text())
    environment = make_environment(tmp_path, locked[0], "gpusteward==0.1.0")
    done = run_sbom("x", "requirements/analyzer.txt", "--installed", environment)
    assert [f"{each['name']}=={each['version']}" for each in json.loads(done.stdout)["components"]] == locked[:1]


def test_what_is_installed_and_not_locked_fails_the_build(tmp_path: Path):
    done = run_sbom("x", "requirements/agent.txt", "--installed", make_environment(tmp_path, "left-pad==1.0"))
    assert done.returncode != 0
    assert "installed, but not locked: left-pad" in done.stderr


def test_a_requirement_without_a_hash_is_refused(tmp_path: Path):
    (tmp_path / "loose.txt").write_text("requests>=2\n")
    done = run_sbom("x", tmp_path / "loose.txt")
    assert done.returncode != 0
    assert "not pinned with a hash: requests>=2" in done.stderr
