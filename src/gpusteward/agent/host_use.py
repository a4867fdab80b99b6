"""What the pods that hold GPUs use of their node besides GPUs: CPU seconds, bytes of disks, bytes of network.

The idea: a GPU that idles while its pod reads a data set, compiles or downloads is not abandoned. The kernel counts all
that for every pod already: CPU and disk in the pod's cgroup, network in its network namespace, of which
`/proc/PID/net/dev` of any process of the pod shows the interfaces. Reading them takes some ten small files per pod, so
they are read every 30 seconds and kept in between.

Invariants:

- A value is what the kernel says. What cannot be read is None, not 0. A counter that begins again is exported as it is:
  `increase()` knows resets.
- Each value fails alone, and visibly (`failures`), but for what is normal: a pod whose cgroup does not exist yet or no
  longer, a pod without a process, and a node whose kernel or kubelet does not count one of them.
- Only directories that the kubelet names count. The search ends at the first level with a directory `kubepods*` and
  never looks into the directory of a pod: whoever may create cgroups in a container can name them after another pod.
- The size of every file that is read is limited, and so are the directories of the search: a machine may have
  thousands of them, and the next cycle is due in seconds.
- A pod in the network of the host has no bytes of network: those of its interfaces are everybody's. A network namespace
  is recognized by the inode of its `net/dev`, because reading `/proc/PID/ns` of others needs a capability.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from gpusteward.agent.nvml import HOST_PID_ADVICE
from gpusteward.agent.processes import parse_cgroup
from gpusteward.core.node.containers import Container
from gpusteward.core.node.snapshots import PodHostUse
from gpusteward.messages.errors.os_errors import explain_os_error

READ_SECONDS = 30.0
"""Twice in a usual scrape interval of a minute; the signals are judged over ten."""
MOST_PARENTS = 4
"""Directories above `kubepods`: none on most nodes, `docker/ID/kubelet` in a node of kind, and one to spare."""
MOST_DIRECTORIES = 512  # of one level of the search; a node has about a hundred services
MOST_NAMES = 4096  # of one directory; a kubelet has 110 pods by default
MOST_BYTES = 1 << 18  # io.stat has about 100 bytes per disk
MOST_DIGITS = 20  # of 64 bits

_CPU = re.compile(rb"^usage_usec (.*)$", re.MULTILINE)
_DISK_V1 = "blkio.throttle.io_service_bytes"
_Value = TypeVar("_Value", int, float)


class HostUseReader:
    """Reads the use of the pods that it is given, when it is due; remembers the directories of their cgroups."""

    def __init__(self, cgroup: Path, proc: Path) -> None:
        self._root = str(cgroup)
        self._proc = str(proc)
        self._read_at: float | None = None
        self._paths: dict[str, str] = {}  # uid in the name of the cgroup -> path below its hierarchy
        self.found: tuple[PodHostUse, ...] = ()  # by the last read
        self.failures: tuple[str, ...] = ()  # of the last read

    def is_due(self, now: float) -> bool:
        """Whether the last read is long ago, or the clock was set back since."""
        return self._read_at is None or not self._read_at <= now < self._read_at + READ_SECONDS

    def read(self, pods: Mapping[str, Container], *, now: float) -> None:
        """Read these pods. A key is the uid in the name of the pod's cgroup: a static pod has another one besides."""
        self._read_at, self.found, self.failures = now, (), ()
        failures: list[str] = []
        is_v2 = os.path.exists(f"{self._root}/cgroup.controllers")  # noqa: PTH110
        cpu, disk = (self._root, self._root) if is_v2 else (f"{self._root}/cpuacct", f"{self._root}/blkio")
        known = {uid: path for uid, path in self._paths.items() if uid in pods and _is_directory(cpu + path)}
        if len(known) < len(pods):
            found = find_pod_cgroups(cpu)
            if not found:
                failures.append(
                    f"no cgroup of a pod is found in {self._root}: mount the host's /sys/fs/cgroup and set --cgroup"
                )
            known = {uid: found[uid] for uid in pods if uid in found}
        self._paths = known

        def attempt(what: str, uid: str, read: Callable[[], _Value | None]) -> _Value | None:
            try:
                return read()
            except FileNotFoundError:
                return None  # its controller is off, or the pod has ended meanwhile
            except OSError as error:
                if not _is_directory(cpu + known[uid]):
                    return None
                name = Path(error.filename).name if error.filename else "a file"
                reason = f"{name}: {explain_os_error(error)}"
            except ValueError as error:
                reason = str(error)
            failures.append(f"{what} of pod {pods[uid].namespace}/{pods[uid].pod}: {reason}")
            return None

        read_cpu, read_disk = (_read_cpu_v2, _read_disk_v2) if is_v2 else (_read_cpu_v1, _read_disk_v1)
        self.found = tuple(
            PodHostUse(
                pods[uid],
                cpu_seconds=attempt("CPU seconds", uid, partial(read_cpu, cpu + path)),
                disk_bytes=attempt("disk bytes", uid, partial(read_disk, disk + path)),
                network_bytes=attempt("network bytes", uid, partial(self._read_network, cpu + path)),
            )
            for uid, path in known.items()
        )
        self.failures = tuple(failures)

    def _read_network(self, path: str) -> int | None:
        """Bytes of all interfaces but lo. None: the pod has no process, or is in the network of the host."""
        pids = sorted(_list_first_pids(path))
        if not pids:
            return None
        if pids[0] == 0:  # how the kernel shows a process that the reader's PID namespace does not have
            raise ValueError(f"its processes are not visible: {HOST_PID_ADVICE}outside of a container")
        host = os.stat(f"{self._proc}/1/net/dev").st_ino  # noqa: PTH116
        # The lowest is usually that of the pause container, which lives as long as the pod.
        for pid in pids:
            try:
                text, inode = _read_file(f"{self._proc}/{pid}/net/dev")
            except OSError:
                continue  # it has ended meanwhile
            return None if inode == host else _sum_interfaces(text)
        return None


def find_pod_cgroups(hierarchy: str) -> dict[str, str]:
    """Pod uid -> path below the hierarchy, of all pods of a kubelet. Levels are searched from the top."""
    level = [""]
    for _ in range(MOST_PARENTS + 1):
        below = [f"{path}/{name}" for path in level for name in _list_directories(hierarchy + path)]
        # `kubepods`, `kubepods.slice`, or with the names of its parents: `kubelet-kubepods.slice`.
        homes = [path for path in below if re.search(r"[/-]kubepods(\.slice)?$", path)]
        if homes:
            break
        # Users may create cgroups in their slice.
        level = [path for path in below if not path.endswith("/user.slice")][:MOST_DIRECTORIES]
    else:
        return {}
    found: dict[str, str] = {}
    for home in homes:
        names = [f"{home}/{name}" for name in _list_directories(hierarchy + home)]
        classes = [path for path in names if re.search(r"[/-](burstable|besteffort)(\.slice)?$", path)]
        names += [f"{path}/{name}" for path in classes for name in _list_directories(hierarchy + path)]
        for path in names:
            if uid := parse_cgroup(f"0::{path}").pod_uid:
                found.setdefault(uid, path)
    return found


def _list_directories(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [each.name for each in islice(entries, MOST_NAMES) if each.is_dir(follow_symlinks=False)]
    except OSError:
        return []  # it was removed meanwhile, or there is no cgroup at all, which the caller sees


def _list_first_pids(path: str) -> Iterator[int]:
    """One process of the pod's cgroup and of each of its containers.

    What runs beside a container in a cgroup of its own (CRI-O's conmon) is in the network of the host and left out.
    """
    containers = (f"{path}/{name}" for name in _list_directories(path))
    for each in (path, *(each for each in containers if parse_cgroup(f"0::{each}").container_id)):
        try:
            with open(f"{each}/cgroup.procs", "rb") as file:  # noqa: PTH123
                first = file.readline(MOST_DIGITS + 1).strip()
        except OSError:
            continue  # it was removed meanwhile, or is threaded
        if first:
            yield _parse_count(first)


def _read_cpu_v2(path: str) -> float:
    found = _CPU.search(_read_file(f"{path}/cpu.stat")[0])
    if found is None:
        raise ValueError("cpu.stat has no usage_usec")
    return _parse_count(found[1]) / 1e6


def _read_cpu_v1(path: str) -> float:
    return _parse_count(_read_file(f"{path}/cpuacct.usage")[0].strip()) / 1e9


def _read_disk_v2(path: str) -> int:
    """Read by words, not by lines: some kernels write several devices into one line."""
    pairs = (word.partition(b"=") for word in _read_file(f"{path}/io.stat")[0].split())
    return sum(_parse_count(value) for name, _, value in pairs if name in (b"rbytes", b"wbytes"))


def _read_disk_v1(path: str) -> int:
    try:
        texts = [_read_file(f"{path}/{_DISK_V1}_recursive")[0]]
    except FileNotFoundError:  # before Linux 4.20: each cgroup has its own bytes only
        paths = [path, *(f"{path}/{name}" for name in _list_directories(path))]
        texts = [_read_file(f"{each}/{_DISK_V1}")[0] for each in paths]
    rows = (line.split() for text in texts for line in text.splitlines())
    return sum(_parse_count(row[2]) for row in rows if len(row) == 3 and row[1] in (b"Read", b"Write"))


def _sum_interfaces(text: bytes) -> int:
    """Received and sent: the first and the ninth number of each interface, after two lines of headers."""
    total = 0
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(b":")
        numbers = rest.split()
        if len(numbers) < 9:
            raise ValueError("net/dev is malformed")
        total += 0 if name.strip() == b"lo" else _parse_count(numbers[0]) + _parse_count(numbers[8])
    return total


def _parse_count(text: bytes) -> int:
    """Stricter than `int`, which takes signs, underscores and blanks."""
    if not text.isdigit() or len(text) > MOST_DIGITS:
        raise ValueError(f"{text[:MOST_DIGITS]!r} is not a count")
    return int(text)


def _read_file(path: str) -> tuple[bytes, int]:
    """The content and the inode. Raises ValueError if it is longer than any that the kernel writes."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        parts, size = [], 0
        while part := file.read(MOST_BYTES + 1 - size):  # the kernel returns a page at a time
            parts.append(part)
            size += len(part)
        if size > MOST_BYTES:
            raise ValueError(f"{Path(path).name} is longer than {MOST_BYTES} bytes")
        return b"".join(parts), os.fstat(file.fileno()).st_ino


def _is_directory(path: str) -> bool:
    return os.path.isdir(path)  # noqa: PTH112
