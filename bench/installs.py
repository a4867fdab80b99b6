"""Both sides as an image would ship them: a fresh virtual environment each, bytecode compiled."""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / ".build"
NVITOP_EXPORTER = "nvitop-exporter==1.7.2"


@dataclass(frozen=True, slots=True)
class Install:
    """A virtual environment and what is in it."""

    folder: Path
    versions: dict[str, str]

    def program(self, name: str) -> str:
        return str(self.folder / "bin" / name)


def install_agent() -> Install:
    """gpusteward from this tree, as a wheel, with the locked dependencies of the agent and nothing else."""
    folder = _make_environment("agent")
    _uv("pip", "sync", "--compile-bytecode", "--require-hashes", "requirements/agent.txt", into=folder)
    wheels = BUILD / "wheel"
    shutil.rmtree(wheels, ignore_errors=True)
    _uv("build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", str(wheels), ".")
    wheel = next(wheels.glob("*.whl"))
    _uv("pip", "install", "--compile-bytecode", "--no-deps", "--reinstall", str(wheel), into=folder)
    return Install(folder, _list_versions(folder))


def install_nvitop() -> Install:
    """The nearest comparable exporter, from PyPI."""
    folder = _make_environment("nvitop")
    _uv("pip", "install", "--compile-bytecode", NVITOP_EXPORTER, into=folder)
    return Install(folder, _list_versions(folder))


def _make_environment(name: str) -> Path:
    folder = BUILD / name
    _uv("venv", "--allow-existing", "--no-python-downloads", "--python", sys.executable, str(folder))
    return folder


def _list_versions(folder: Path) -> dict[str, str]:
    listed = json.loads(_uv("pip", "list", "--format", "json", into=folder))
    return {package["name"]: package["version"] for package in listed}


def _uv(*arguments: str, into: Path | None = None) -> str:
    """Run uv; its errors go to standard error."""
    program = shutil.which("uv") or str(BUILD / "uv/bin/uv")
    target = ("--python", str(into / "bin/python")) if into else ()
    command = [program, "-q", *arguments, *target]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
