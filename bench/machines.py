"""The machine of a run. No host name and no path, so that results can be published."""

import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True, slots=True)
class About:
    """Machine, versions and date of one run."""

    command: str
    date: str
    processor: str
    cores: int
    kernel: str
    python: str
    c_library: str
    versions: dict[str, dict[str, str]]  # by side: what is installed there


def describe_run(command: str, versions: dict[str, dict[str, str]]) -> About:
    return About(
        command=command,
        date=datetime.now(UTC).date().isoformat(),
        processor=_find_processor(Path("/proc/cpuinfo").read_text()),
        cores=len(os.sched_getaffinity(0)),
        kernel=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        c_library=" ".join(platform.libc_ver()),
        versions=versions,
    )


def _find_processor(cpuinfo: str) -> str:
    lines = (line.partition(":") for line in cpuinfo.splitlines())
    return next((value.strip() for name, _, value in lines if name.strip() == "model name"), "unknown")
