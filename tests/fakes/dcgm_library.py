"""Builds the fake `libdcgm.so.3` and `libdcgm.so.4` against NVIDIA's headers, and loads them below the real bindings.

The headers are downloaded by `.ci/dcgm-headers`; without them the tests are skipped, and fail in CI.
"""

import ctypes
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import give_up
from tests.fakes.nvml_library import FLAGS

SOURCE = Path(__file__).parent / "dcgm" / "libdcgm.c"
SCRIPT = Path(__file__).parents[2] / ".ci" / "dcgm-headers"

DEFAULT_FIELDS = (1001, 1004, 1005, 1009, 1010)


def find_headers() -> Path:
    """The folder that the script makes; skips where it did not run."""
    cache_folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(SCRIPT.read_bytes()).hexdigest()[:12]
    folder = cache_folder / "gpusteward" / f"dcgm-headers-{digest}"
    if not (folder / "4").is_dir():
        give_up("NVIDIA's headers of DCGM are missing; `make components` downloads them (needs Go)")
    return folder


@cache
def build_library(major: int) -> Path:
    """Compile the fake of this DCGM version once per version of its source, outside the source tree."""
    name, headers = f"libdcgm.so.{major}", find_headers() / str(major)
    flags = [*FLAGS, "-fvisibility=default", f"-isystem{headers}", f"-DFAKE_DCGM_MAJOR={major}", f"-Wl,-soname,{name}"]
    digest = hashlib.sha256(SOURCE.read_bytes() + repr(flags).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"gpusteward-fake-dcgm-{os.getuid()}-{digest}"
    folder.mkdir(exist_ok=True)
    library = folder / name
    if not library.exists():
        aside = folder / f"{name}.{os.getpid()}"
        subprocess.run(["cc", *flags, "-o", str(aside), str(SOURCE)], check=True)
        aside.replace(library)
    return library


def environment(scenario: Path, major: int, base: Mapping[str, str] = os.environ) -> Mapping[str, str]:
    """The environment of a subprocess that finds this libdcgm."""
    paths = [str(build_library(major).parent), *filter(None, [base.get("LD_LIBRARY_PATH")])]
    return {**base, "LD_LIBRARY_PATH": ":".join(paths), "FAKE_DCGM_SCENARIO": str(scenario)}


@dataclass
class DcgmScenario:
    """A hostengine, what it knows, and its faults (format: dcgm/libdcgm.c)."""

    lines: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def listen(self, address: str) -> None:
        self.lines.append(f"listen {address}")

    def gpu(self, number: int, uuid: str, *, supports: tuple[int, ...] = DEFAULT_FIELDS) -> None:
        self.lines.append(f"gpu {number} {uuid}")
        if supports:
            self.lines.append(f"support {number} {' '.join(map(str, supports))}")

    def instance(self, number: int, gpu: int, *, nvml_id: int) -> None:
        self.lines.append(f"instance {number} {gpu} {nvml_id}")

    def value(self, entity: str, number: object) -> None:
        """`entity`: `gpu 3 1001` or `instance 5 1001`; a whole number is an integer field."""
        kind = "int" if isinstance(number, int) else "double"
        self.lines.append(f"value {entity} {kind} {number}")

    def blank(self, entity: str, kind: str, word: str) -> None:
        self.lines.append(f"value {entity} {kind} {word}")

    def write(self, path: Path) -> None:
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        aside.write_text("".join(f"{line}\n" for line in [*self.lines, *self.faults]))
        aside.replace(path)


class FakeDcgm:
    """The fake libdcgm of this process."""

    def __init__(self, path: Path, major: int) -> None:
        self.path = path
        self.soname = f"libdcgm.so.{major}"
        self._library = ctypes.CDLL(str(build_library(major)))  # found by its soname from now on
        self._library.fake_dcgm_calls.restype = ctypes.c_ulonglong
        self._library.fake_dcgm_every.restype = ctypes.c_longlong

    def load(self, scenario: DcgmScenario) -> None:
        scenario.write(self.path)
        self._library.fake_dcgm_scenario(str(self.path).encode())

    @property
    def connections(self) -> int:
        return int(self._library.fake_dcgm_connections())

    @property
    def watches(self) -> int:
        return int(self._library.fake_dcgm_watches())

    @property
    def calls(self) -> int:
        return int(self._library.fake_dcgm_calls())

    @property
    def watch_seconds(self) -> float:
        return int(self._library.fake_dcgm_every()) / 1e6

    @property
    def is_initialised(self) -> bool:
        return bool(self._library.fake_dcgm_is_initialised())


@pytest.fixture(params=[3, 4])
def fake_dcgm(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FakeDcgm]:
    """A fake libdcgm, once of each DCGM version; a test that leaves a connection open fails."""
    fake = FakeDcgm(tmp_path / "dcgm", request.param)
    fake.load(DcgmScenario())
    yield fake
    assert not fake.connections, "the test left a hostengine connected"
    assert not fake.is_initialised, "the test left libdcgm initialised"
