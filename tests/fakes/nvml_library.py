"""Builds the fake `libnvidia-ml.so.1` and puts it under the true NVML binding.

In this process the library is loaded once, under the name the binding asks for, and told which scenario to
play. A subprocess gets it by `environment()`.
"""

import ctypes
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from gpusteward.agent.nvml import Nvml
from tests.fakes.nvml_scenarios import Scenario

NAME = "libnvidia-ml.so.1"
SOURCES = Path(__file__).parent / "nvml"
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread")


@cache
def build_library(*, old_driver: bool = False) -> Path:
    """Compile the fake, once for each state of its source, outside the source tree."""
    flags = [*FLAGS, f"-Wl,-soname,{NAME}", *(["-DFAKE_OLD_DRIVER"] if old_driver else [])]
    sources = sorted(SOURCES.glob("*.[ch]"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources) + repr(flags).encode())
    folder = Path(tempfile.gettempdir()) / f"gpusteward-fake-nvml-{os.getuid()}-{digest.hexdigest()[:16]}"
    folder.mkdir(exist_ok=True)
    library = folder / NAME
    if not library.exists():
        aside = folder / f"{NAME}.{os.getpid()}"
        units = [str(source) for source in sources if source.suffix == ".c"]
        subprocess.run(["cc", *flags, "-o", str(aside), *units], check=True)
        aside.replace(library)
    return library


def environment(scenario: Path, *, old_driver: bool = False) -> Mapping[str, str]:
    """The environment of a subprocess that is to see this scenario as its NVIDIA driver."""
    folder = build_library(old_driver=old_driver).parent
    return {**os.environ, "LD_LIBRARY_PATH": str(folder), "FAKE_NVML_SCENARIO": str(scenario)}


class NvmlWorld:
    """The machine that NVML tells of in this process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Global, and under its soname: the binding's own CDLL("libnvidia-ml.so.1") finds this one.
        self._library = ctypes.CDLL(str(build_library()), mode=ctypes.RTLD_GLOBAL)
        self._library.fake_nvml_calls.restype = ctypes.c_ulonglong

    def begin(self, scenario: Scenario) -> None:
        """A new machine."""
        scenario.write(self.path)
        self._library.fake_nvml_scenario(str(self.path).encode())

    def become(self, scenario: Scenario) -> None:
        """The same machine, later: events already told are not told again."""
        scenario.write(self.path)
        self._library.fake_nvml_changed(str(self.path).encode())

    @property
    def open_handles(self) -> int:
        """Initialisations, GPM samples and event sets not given back."""
        return int(self._library.fake_nvml_open_handles())

    @property
    def calls(self) -> int:
        """Calls of NVML so far."""
        return int(self._library.fake_nvml_calls())


@pytest.fixture
def nvml_world(tmp_path: Path) -> Iterator[NvmlWorld]:
    """A machine to play with; fails the test that leaves NVML open."""
    world = NvmlWorld(tmp_path / "scenario")
    world.begin(Scenario())
    yield world
    assert world.open_handles == 0, "the test left NVML open"


Opener = Callable[..., Nvml]


@pytest.fixture
def open_nvml(nvml_world: NvmlWorld) -> Iterator[Opener]:
    """Makes `Nvml` doors to a scenario; closes them afterwards."""
    opened: list[Nvml] = []

    def open_one(scenario: Scenario, **options: Callable[[], float]) -> Nvml:
        nvml_world.begin(scenario)
        opened.append(Nvml("node-1", event_wait_milliseconds=10, **options))
        return opened[-1]

    yield open_one
    for nvml in opened:
        nvml.release()
