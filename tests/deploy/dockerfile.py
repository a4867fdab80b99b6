"""Executes the stages of the Dockerfile without an engine: a stage is a tree of files, RUN a shell on this machine.

Absolute paths of the Dockerfile mean paths below one folder, the root. The tree of a stage is there while it is made
or used, and beside it otherwise, so that the paths that `pip` writes into scripts are right in every stage. A base
image is an empty environment of its Python, or the Node of this machine; all else (shell, libc) is this machine's.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.conftest import give_up

UNREACHABLE = re.compile(
    r"NewConnectionError|[Nn]ame resolution|Name or service not known|ENOTFOUND|EAI_AGAIN|ECONNREFUSED"
)
PATHS = re.compile(r"(?<![\w./$}])/(?=(?:opt|source|usr/local|var|wheels)\b)")
"""The absolute paths of a step that belong to the image; others, such as /livez, are none of its files."""


class Step(NamedTuple):
    instruction: str
    text: str


class Stage(NamedTuple):
    name: str
    base: str
    """Another stage, or an image."""
    steps: list[Step]


def read_stages(text: str) -> dict[str, Stage]:
    """The stages by name, with `ARG NAME=VALUE` before the first one put into the images that they begin with."""
    lines = re.sub(r"(?m)^\s*#.*\n", "", text).replace("\\\n", " ").splitlines()
    steps = [Step(*line.split(maxsplit=1)) for line in lines if line.strip()]
    first = next(number for number, step in enumerate(steps) if step.instruction == "FROM")
    values = dict(step.text.split("=", 1) for step in steps[:first] if step.instruction == "ARG")
    stages: dict[str, Stage] = {}
    for step in steps[first:]:
        if step.instruction == "FROM":
            base, _, name = re.sub(r"--platform=\S+ ", "", step.text).split()
            base = re.sub(r"\$\{(\w+)\}", lambda found: values[found[1]], base)
            stages[name] = Stage(name, base, [])
        else:
            stages[name].steps.append(step)
    return stages


def find_python(image: str) -> str:
    """The interpreter of the version that `python:3.13-slim` has, or that of the tests where there is none. pyenv's
    `python3.13` runs only where its version is chosen."""
    version = re.match(r"python:(\d+\.\d+)", image)
    assert version is not None, image
    ask = [f"python{version[1]}", "-c", "import sys; print(sys.executable)"]
    try:
        done = subprocess.run(
            ask, capture_output=True, text=True, check=True, env={**os.environ, "PYENV_VERSION": version[1]}
        )
    except (OSError, subprocess.CalledProcessError):
        return str(Path(sys.base_prefix, f"bin/python3.{sys.version_info.minor}"))
    return done.stdout.strip()


class Build:
    """Makes each stage once."""

    def __init__(self, dockerfile: str, context: Path, root: Path) -> None:
        self.stages = read_stages(dockerfile)
        self.commands: list[str] = []
        """The RUN steps that were executed."""
        self._context = context
        self._root = root
        ignored = (context / ".dockerignore").read_text().splitlines()
        self._ignored_names = {line[3:] for line in ignored if line.startswith("**/")}
        self._ignored_paths = {context / line for line in ignored if re.match(r"\w", line)}

    def make(self, name: str) -> Path:
        """The tree of the stage, beside the root."""
        saved = self._root.with_name(f"{self._root.name}.{name}")
        if saved.exists():
            return saved
        stage = self.stages[name]
        for needed in re.findall(r"--from=(\S+)", " ".join(step.text for step in stage.steps)):
            self.make(needed)
        if stage.base in self.stages:
            shutil.copytree(self.make(stage.base), self._root, symlinks=True)
        else:
            self._begin(stage.base)
        try:
            self._execute(stage)
        except BaseException:  # it must neither be taken for a stage nor be in the way of the next one
            shutil.rmtree(self._root)
            raise
        return self._root.rename(saved)

    @contextmanager
    def placed(self, name: str) -> Iterator[Path]:
        """The root, with the tree of the stage."""
        saved = self.make(name)
        saved.rename(self._root)
        try:
            yield self._root
        finally:
            self._root.rename(saved)

    def _begin(self, image: str) -> None:
        self._root.mkdir()
        if image.startswith("python:"):
            command = [find_python(image), "-m", "venv", str(self._root / "usr/local")]
            subprocess.run(command, check=True, capture_output=True, timeout=60)
        elif shutil.which("npm") is None:
            give_up("Node is not installed; the web UI needs 20.19 or newer")

    def list_environment(self, name: str) -> dict[str, str]:
        """ENV of the stage and of those it is based on, except that downloads may come from pip's cache."""
        stage = self.stages[name]
        inherited = self.list_environment(stage.base) if stage.base in self.stages else {"PATH": "/usr/local/bin:$PATH"}
        text = " ".join(step.text for step in stage.steps if step.instruction == "ENV")
        own = {
            key: value.replace("$PATH", inherited["PATH"])
            for key, value in re.findall(r"(\w+)=(\S+)", text)
            if key != "PIP_NO_CACHE_DIR"
        }
        return {**inherited, **own}

    def _execute(self, stage: Stage) -> None:
        folder = self._root / self._find_workdir(stage).lstrip("/")
        for step in stage.steps:
            if step.instruction == "WORKDIR":
                folder.mkdir(parents=True, exist_ok=True)
            elif step.instruction == "COPY":
                self._copy(step.text.split(), folder)
            elif step.instruction == "RUN":
                self._run(stage, step.text, folder)

    def _find_workdir(self, stage: Stage) -> str:
        own = [step.text for step in stage.steps if step.instruction == "WORKDIR"]
        assert len(own) < 2, "the steps before the last one would run elsewhere"
        if own:
            return own[0]
        return self._find_workdir(self.stages[stage.base]) if stage.base in self.stages else "/"

    def _copy(self, words: list[str], folder: Path) -> None:
        source_folder = self._context
        if words[0].startswith("--from="):
            source_folder = self.make(words.pop(0).partition("=")[2])
        *sources, last = words
        target = self._root / last.lstrip("/") if last.startswith("/") else folder / last
        for name in sources:
            source = source_folder / name.lstrip("/")
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, ignore=self._list_ignored)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target / source.name if last.endswith("/") else target)

    def _list_ignored(self, folder: str, names: list[str]) -> set[str]:
        if not Path(folder).is_relative_to(self._context):
            return set()
        return {name for name in names if name in self._ignored_names or Path(folder, name) in self._ignored_paths}

    def _run(self, stage: Stage, command: str, folder: Path) -> None:
        self.commands.append(command)
        environment = {key: self._put_below_root(value) for key, value in self.list_environment(stage.name).items()}
        environment["PATH"] = environment["PATH"].replace("$PATH", os.environ["PATH"])
        if "stdlib" in command:  # that of this machine's Python, which stays as it is
            environment["PYTHONPYCACHEPREFIX"] = str(self._root / "bytecode")
        # Only what gives files to another user needs root.
        as_root = ["sudo", "-n", "-E"] if re.search(r" -o \d", command) and os.getuid() else []
        done = subprocess.run(
            [*as_root, "sh", "-ec", self._put_below_root(command)],
            cwd=folder,
            env={**os.environ, "npm_config_prefer_offline": "true", **environment},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        if done.returncode and UNREACHABLE.search(done.stderr):
            give_up(f"no package registry is reachable: {done.stderr.strip().splitlines()[-1]}")
        assert done.returncode == 0, f"{stage.name}: RUN {command}\n{done.stdout}{done.stderr}"

    def _put_below_root(self, text: str) -> str:
        return PATHS.sub(f"{self._root}/", text)
