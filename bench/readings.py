"""CPU time and memory of another process, as the kernel accounts for them."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

_SCHEDULED = 2  # CPUCLOCK_SCHED of linux/posix-timers_types.h


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory in KiB."""

    rss: int
    anonymous: int  # the part that no file backs: what this process alone costs
    peak: int


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


def read_busy_seconds() -> float:
    """CPU time of all processes on all cores of this machine, including time stolen by a hypervisor."""
    return parse_stat(Path("/proc/stat").read_text(), os.sysconf("SC_CLK_TCK"))


def parse_stat(text: str, ticks_per_second: int) -> float:
    """The first line of a /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, text.split("\n", 1)[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) / ticks_per_second


def cpu_clock_of(pid: int) -> int:
    """The number of a process's CPU clock, as clock_getcpuclockid(3) makes it."""
    return (~pid << 3) | _SCHEDULED
