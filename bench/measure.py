"""What every bench measures with: the machine of a run, CPU time and memory of a process as the kernel accounts for
them, how busy the rest of the machine is, progress messages."""

import os
import platform
import shlex
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

KIB, MB = 1024, 1_000_000
LISTEN_SECONDS = 0.5
QUIET_CORES = 0.3
PATIENCE_SECONDS = 20.0
"""How long `wait_for_quiet` waits."""
_SCHEDULED = 2  # CPUCLOCK_SCHED of linux/posix-timers_types.h


def print_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class About:
    """Machine, versions and date of one run. No host name and no path, so that results can be published."""

    command: str
    date: str
    processor: str
    cores: int
    kernel: str
    python: str
    c_library: str
    versions: dict[str, dict[str, str]]  # by side: what is installed there


def describe_run(command: str, versions: dict[str, dict[str, str]] | None = None) -> About:
    cpuinfo = (line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines())
    return About(
        command=command,
        date=datetime.now(UTC).date().isoformat(),
        processor=next((value.strip() for name, _, value in cpuinfo if name.strip() == "model name"), "unknown"),
        cores=len(os.sched_getaffinity(0)),
        kernel=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        c_library=" ".join(platform.libc_ver()),
        versions=versions or {},
    )


def name_command(name: str) -> str:
    """The command of a bench as it was called."""
    main = sys.modules["__main__"].__spec__
    arguments = sys.argv[1:] if main is not None and main.name == f"bench.{name}" else []
    return shlex.join(("python", "-m", f"bench.{name}", *arguments))


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory in KiB."""

    rss: int
    anonymous: int  # the part that no file backs: what this process alone costs
    peak: int

    @property
    def peak_mb(self) -> float:
        return self.peak * KIB / MB


def read_memory(pid: int | str) -> Memory:
    return parse_status(Path(f"/proc/{pid}/status").read_text())


def parse_status(text: str) -> Memory:
    """The memory lines of a /proc/PID/status."""
    fields = dict(line.split(":", 1) for line in text.splitlines())
    rss, anonymous, peak = (int(fields[name].split()[0]) for name in ("VmRSS", "RssAnon", "VmHWM"))
    return Memory(rss, anonymous, peak)


def read_cpu_seconds(pid: int) -> float:
    """CPU time of all threads, those that have ended too.

    Not the sum of /proc/PID/task/*/schedstat: the time of a thread leaves that sum when the thread ends, and a server
    with a thread for each request would look as if requests cost it nothing.
    """
    return time.clock_gettime(cpu_clock_of(pid))


def cpu_clock_of(pid: int) -> int:
    """The number of a process's CPU clock, as clock_getcpuclockid(3) makes it."""
    return (~pid << 3) | _SCHEDULED


def read_busy_seconds() -> float:
    """CPU time of all processes on all cores of this machine, including time stolen by a hypervisor."""
    return parse_stat(Path("/proc/stat").read_text(), os.sysconf("SC_CLK_TCK"))


def parse_stat(text: str, ticks_per_second: int) -> float:
    """The first line of a /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, text.split("\n", 1)[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) / ticks_per_second


def wait_for_quiet() -> float:
    """The number of cores used by other programs, when it was quiet or the wait was over: a round runs anyway."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        busy = read_busy_seconds()
        time.sleep(LISTEN_SECONDS)
        cores = (read_busy_seconds() - busy) / LISTEN_SECONDS
        if cores <= QUIET_CORES or time.monotonic() >= deadline:
            return cores
