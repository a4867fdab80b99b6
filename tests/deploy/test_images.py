"""The images without a Docker engine: the same files, installation and commands."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import give_up
from tests.documents import ROOT
from tests.local.processes import running_command

pytestmark = pytest.mark.slow

DOCKERFILE = (ROOT / "deploy/images/Dockerfile").read_text()
IGNORED = (ROOT / ".dockerignore").read_text().splitlines()
COPIED = [
    source for words in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE) for source in words.split()[:-1]
]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
GROUPS = {name: wanted for name, wanted in PROJECT["dependency-groups"].items() if name != "dev"}
MAKEFILE = (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("source", COPIED)
def test_copied_files_exist_and_are_not_ignored(source: str):
    assert (ROOT / source).exists()
    assert "*" in IGNORED
    assert f"!{source}" in IGNORED


def test_all_files_of_the_build_are_copied():
    project = (ROOT / "pyproject.toml").read_text()
    locks = {"requirements/agent.txt", "requirements/analyzer.txt", "requirements/build.txt"}
    assert {"pyproject.toml", "src", "README.md", "LICENSE", "deploy/images/make_sbom.py", *locks} == set(COPIED)
    assert 'readme = "README.md"' in project
    assert 'license-files = ["LICENSE"]' in project


def read_pins(name: str) -> dict[str, set[str]]:
    """`numpy==2.4.6 ; python_full_version < '3.12'` -> its hashes."""
    text = (ROOT / f"requirements/{name}.txt").read_text().replace(" \\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    return {
        line.partition(" --hash")[0].strip(): set(re.findall(r"--hash=(sha256:[0-9a-f]{64})", line)) for line in lines
    }


def test_a_plain_install_has_what_every_image_has_except_model_sdks():
    sdks = PROJECT["project"]["optional-dependencies"]["ai"]
    wanted = {each for group in GROUPS.values() for each in group}
    assert {*PROJECT["project"]["dependencies"], *sdks} == wanted
    assert not {*PROJECT["project"]["dependencies"]} & {*sdks}


@pytest.mark.parametrize("group", GROUPS)
def test_every_group_is_locked_with_the_tested_hashes_and_without_index_addresses(group: str):
    pins, tested = read_pins(group), read_pins("dev")
    assert pins
    assert all(pins.values())
    assert {pin: hashes for pin, hashes in tested.items() if pin in pins} == pins
    wanted = {re.match(r"[a-z0-9-]+", each)[0] for each in GROUPS[group]}
    assert wanted <= {pin.partition("==")[0].partition("[")[0] for pin in pins}
    assert not re.search(r"://|index|@", (ROOT / f"requirements/{group}.txt").read_text())
    assert f"--group {group} -c requirements/dev.txt -o requirements/{group}.txt" in MAKEFILE


@pytest.mark.parametrize(("program", "port"), [("agent", 9400), ("analyzer", 8080)])
def test_each_image_has_the_port_and_command_of_its_manifest(program: str, port: int):
    manifest = (ROOT / f"deploy/manifests/{program}.yaml").read_text()
    assert f"EXPOSE {port}" in DOCKERFILE
    assert f"containerPort: {port}" in manifest
    assert 'ENTRYPOINT ["gpusteward"]' in DOCKERFILE
    tag = re.search(rf"--target {program} -t (\S+)", DOCKERFILE)
    assert tag is not None
    assert f"image: {tag[1]}" in manifest


@pytest.fixture(scope="module")
def uv() -> str:
    built_by_make = ROOT / ".build/uv/bin/uv"
    path = shutil.which("uv") or (str(built_by_make) if built_by_make.exists() else None)
    if path is None:
        give_up("uv is not installed; `make test` installs it")
    return str(path)


@pytest.fixture(scope="module")
def installed(uv: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(uv, tmp_path_factory.mktemp("agent"), "agent")


def install(uv: str, folder: Path, group: str = "") -> Path:
    """The bin directory of a new environment outside the repository: the contents of an image, or a plain install."""
    python = str(folder / "venv/bin/python")

    def run(*words: str) -> None:
        done = subprocess.run([uv, *words], check=False, cwd=folder, capture_output=True, text=True, timeout=100)
        if done.returncode and re.search(r"dns error|[Ff]ailed to (fetch|connect)|error sending request", done.stderr):
            give_up(f"no package index is reachable: {done.stderr.strip().splitlines()[-1]}")
        assert done.returncode == 0, done.stderr

    run("venv", "-q", "--no-python-downloads", "--python", sys.executable, "venv")
    if group:
        locked = str(ROOT / f"requirements/{group}.txt")
        run("pip", "install", "-q", "--python", python, "--compile-bytecode", "--require-hashes", "-r", locked)
    run("build", "-q", "--wheel", "--no-build-isolation", "--python", sys.executable, "-o", "dist", str(ROOT))
    (wheel,) = (folder / "dist").glob("*.whl")
    # A plain install has the versions of the lock, so that this test fails only for what is declared.
    others = ["--no-deps"] if group else ["--compile-bytecode", "-c", str(ROOT / "requirements/dev.txt")]
    run("pip", "install", "-q", "--python", python, *others, str(wheel))
    return folder / "venv/bin"


def test_the_agent_needs_only_its_locked_dependencies_and_the_wheel(installed: Path, tmp_path: Path):
    done = run_installed(installed, tmp_path, "gpusteward", "agent", "--help")
    assert done.startswith("usage: gpusteward agent")
    modules = "gpusteward.agent.app, gpusteward.agent.simulated_source, bcrypt, yaml, sys"
    parts = f"import {modules}; print(gpusteward.__file__)"
    assert str(installed.parent) in run_installed(installed, tmp_path, "python", "-c", parts)


def test_the_wheel_contains_only_the_package(installed: Path, tmp_path: Path):
    names = run_installed(
        installed, tmp_path, "python", "-c", "import os, sysconfig; print(*os.listdir(sysconfig.get_path('purelib')))"
    )
    assert "gpusteward" in names.split()
    assert not {"tests", "docs", "bench", "pytest"} & set(names.split())


def test_the_analyzer_needs_only_its_locked_dependencies(uv: str, tmp_path: Path):
    programs = install(uv, tmp_path, "analyzer")
    assert "usage: gpusteward serve" in run_installed(programs, tmp_path, "gpusteward", "serve", "--help")
    parts = "import gpusteward.analyzer.app, gpusteward.analyzer.explain.model_client; print('imported')"
    assert "imported" in run_installed(programs, tmp_path, "python", "-c", parts)


def test_the_command_line_needs_only_its_locked_dependencies(uv: str, tmp_path: Path):
    programs = install(uv, tmp_path, "cli")
    assert "thresholds.idle" in run_installed(programs, tmp_path, "gpusteward", "settings")
    parts = "import gpusteward.cli.top.app, gpusteward.cli.commands.report, rich; print('imported')"
    assert "imported" in run_installed(programs, tmp_path, "python", "-c", parts)


@pytest.mark.timeout(300)
def test_a_plain_install_runs_the_demo_and_says_how_to_add_model_sdks(uv: str, tmp_path: Path):
    programs = install(uv, tmp_path)
    environ = {"PATH": os.defpath, "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    command = [str(programs / "gpusteward"), "demo", "--address", "127.0.0.1:0", "--nodes", "2"]
    with running_command(command, env=environ) as demo:
        demo.wait_for_address(120)
        assert demo.wait_for("/api/v1/workloads", 60)["items"]
        demo.interrupt()
    refused = subprocess.run(
        [programs / "gpusteward", "serve", "--set", "ai.enabled=true", "--address", "127.0.0.1:0"],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode == 2
    assert refused.stderr.endswith("install them with pip install 'gpusteward[ai]', or set ai.enabled to false\n")


def test_the_settings_command_loads_only_libraries_of_the_extra_cli():
    """Although more libraries are installed here."""
    code = (
        "import sys; from gpusteward.cli.main import main; main(['settings']);"
        "print('loaded', *{name.partition('.')[0] for name, module in sys.modules.items()"
        " if 'site-packages' in (getattr(module, '__file__', None) or '')})"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=30)
    loaded = set(done.stdout.splitlines()[-1].split()[1:])
    of_extra = {"numpy", "pydantic", "yaml"}
    indirect = {
        "annotated_types",
        "pydantic_core",
        "typing_extensions",
        "typing_inspection",
        "_distutils_hack",
    }
    assert loaded <= of_extra | indirect


def run_installed(installed: Path, folder: Path, program: str, *words: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    done = subprocess.run(
        [str(installed / program), *words],
        check=False,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
