"""Builds the fake `libnvidia-ml.so.1` and loads it below the real pynvml.

In this process the library is loaded once, under the name pynvml uses, with a scenario file that tests replace. A
subprocess gets it through `environment()`.
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
    """Compile the fake once per version of its sources, outside the source tree.

    Safe with several test processes: each compiles under its own name and renames the result.
    """
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
    """The environment of a subprocess that uses this scenario as its NVIDIA driver."""
    folder = build_library(old_driver=old_driver).parent
    return {**os.environ, "LD_LIBRARY_PATH": str(folder), "FAKE_NVML_SCENARIO": str(scenario)}


class FakeNvml:
    """The fake driver of this process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Loaded globally under its soname: pynvml's own CDLL("libnvidia-ml.so.1") finds this one.
        self._library = ctypes.CDLL(str(build_library()), mode=ctypes.RTLD_GLOBAL)
        self._library.fake_nvml_calls.restype = ctypes.c_ulonglong

    def load(self, scenario: Scenario) -> None:
        """Start a new scenario."""
        scenario.write(self.path)
        self._library.fake_nvml_scenario(str(self.path).encode())

    def change(self, scenario: Scenario) -> None:
        """Change the current scenario: events already delivered are not delivered again."""
        scenario.write(self.path)
        self._library.fake_nvml_changed(str(self.path).encode())

    @property
    def open_handles(self) -> int:
        """Initialisations, GPM samples and event sets that were not freed."""
        return int(self._library.fake_nvml_open_handles())

    @property
    def calls(self) -> int:
        """Number of NVML calls so far."""
        return int(self._library.fake_nvml_calls())


@pytest.fixture
def fake_nvml(tmp_path: Path) -> Iterator[FakeNvml]:
    """A fake driver with an empty scenario; a test that leaves NVML open fails."""
    scenario = FakeNvml(tmp_path / "scenario")
    scenario.load(Scenario())
    yield scenario
    assert scenario.open_handles == 0, "the test left NVML open"


Opener = Callable[..., Nvml]


@pytest.fixture
def open_nvml(fake_nvml: FakeNvml) -> Iterator[Opener]:
    """Creates `Nvml` clients of a scenario; releases them afterwards."""
    opened: list[Nvml] = []

    def open_one(scenario: Scenario, **options: Callable[[], float]) -> Nvml:
        fake_nvml.load(scenario)
        opened.append(Nvml("node-1", event_wait_milliseconds=10, **options))
        return opened[-1]

    yield open_one
    for nvml in opened:
        nvml.release()
