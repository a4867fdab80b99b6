"""Jobs of a workload manager such as Slurm, by GPU, from the files that its prolog writes.

The format is dcgm-exporter's: `<directory>/<gpu>` or, for a MIG instance, `<directory>/<gpu>.<gpu instance>` has one
job per line. Whoever may write there is not trusted: only regular files are read, never links, and all is bounded.
"""

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from gpusteward.core.errors import SourceError
from gpusteward.core.node.gpus import Gpu
from gpusteward.logs import Log

log = Log(__name__)

MAX_FILE_BYTES = 64 * 1024
MAX_JOBS = 64
"""Per GPU; each one is a copy of every sample of the GPU."""
MAX_JOB_LENGTH = 256

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # neither a link nor a FIFO without a writer
JobsByGpu = Mapping[str, tuple[str, ...]]


class HpcJobs:
    """Reads the files of the GPUs of this node, once per cycle."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.failures: list[str] = []  # of the last read
        if not directory.is_dir():
            log.warning("hpc_directory_missing", path=directory, effect="no jobs until it exists")

    def read(self, gpus: Iterable[Gpu]) -> JobsByGpu:
        """The jobs of each GPU that has any, by uuid; a file that cannot be used is one of `failures`.

        Without the directory there are no jobs. Raises SourceError when it cannot be opened.
        """
        self.failures = []
        try:
            directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise SourceError(f"{self._directory} cannot be opened: {error.strerror}") from error
        try:
            jobs = {gpu.uuid: self._read_jobs(directory, file_name(gpu)) for gpu in gpus}
        finally:
            os.close(directory)
        return {uuid: own for uuid, own in jobs.items() if own}

    def _read_jobs(self, directory: int, name: str) -> tuple[str, ...]:
        try:
            text = _read_text(directory, name)
        except FileNotFoundError:
            return ()
        except OSError as error:
            self.failures.append(f"{self._directory / name} cannot be read: {error.strerror}")
            return ()
        jobs = parse_jobs(text[:MAX_FILE_BYTES])
        if len(text) > MAX_FILE_BYTES or len(jobs) > MAX_JOBS:
            self.failures.append(
                f"{self._directory / name} has more than {MAX_JOBS} jobs or {MAX_FILE_BYTES} bytes: the rest is ignored"
            )
        return jobs[:MAX_JOBS]


def file_name(gpu: Gpu) -> str:
    return f"{gpu.index}.{gpu.mig.gpu_instance_id}" if gpu.mig else str(gpu.index)


def parse_jobs(text: bytes) -> tuple[str, ...]:
    """One job per line, each once. Blank lines are no jobs: for Prometheus an empty label does not exist."""
    lines = (line.removesuffix("\r")[:MAX_JOB_LENGTH] for line in text.decode(errors="replace").split("\n"))
    return tuple(dict.fromkeys(line for line in lines if line.strip()))


def _read_text(directory: int, name: str) -> bytes:
    """At most one byte more than the limit. Raises OSError, also for anything but a regular file."""
    with os.fdopen(os.open(name, _FLAGS, dir_fd=directory), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(0, "it is not a regular file")
        return file.read(MAX_FILE_BYTES + 1)
