"""The processes on a GPU: NVML's compute, graphics and MPS lists, merged per process."""

import ctypes
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

import pynvml

from gpusteward.agent.nvml.library import (
    INSUFFICIENT_SIZE,
    Function,
    Handle,
    describe,
    find_function,
    is_absent,
    raise_if_fatal,
)
from gpusteward.core.node.gpus import MPS_SERVER

ENTRY = struct.Struct("<I4xQII")  # nvmlProcessInfo_v2_t and _v3_t: pid, memory, GPU and compute instance
NOT_AVAILABLE = 2**64 - 1
INITIAL_ENTRIES = 64
MAX_TRIES = 5  # of a list that outgrows its buffer each time

MIN_HELD_BYTES = 256 * 2**20
"""Memory in use from which a GPU must have a process. An unused GPU holds a few MiB besides the driver's reserve, the
smallest CUDA context some hundred; the value in between is our guess."""

BUSY_RATIO = 0.05
"""A device above this ratio is busy; less can be hidden from the per-process samples by rounding. The value is our
guess."""
_UTILIZATION = ("utilization_ratio", "utilization_mean_ratio")

HOST_PID_ADVICE = "run the agent with hostPID: true, or "
"""Advice for a cluster node; replaced by other advice where there is no Kubernetes."""
_ADVICE = f"{HOST_PID_ADVICE}look for a dead process that still holds memory"


@dataclass(slots=True)
class GpuProcessList:
    """The processes on one GPU with the memory of each; None is unknown."""

    memory: dict[int, int | None] = field(default_factory=dict)
    is_mps: bool = False
    is_known: bool = True
    failures: list[str] = field(default_factory=list)

    def detect_hidden_processes(self, signals: Mapping[str, float]) -> None:
        """Mark the list as unknown if it is empty although the GPU is in use: the agent cannot see the processes."""
        if not self.is_known or self.memory:
            return
        held = signals.get("memory_used_bytes")
        if held is None:  # no memory info: its utilization counts
            busy = min((signals[name] for name in _UTILIZATION if name in signals), default=0.0)
            use = "the GPU is busy" if busy >= BUSY_RATIO else ""
        else:
            use = "GPU memory is in use" if "memory_reserved_bytes" in signals and held >= MIN_HELD_BYTES else ""
        if use:
            self.is_known = False
            self.failures.append(f"the process list is empty although {use}: {_ADVICE}")


class ProcessLists:
    """Reads the three lists of any device into one reused buffer."""

    def __init__(self) -> None:
        self._compute = _find_list("Compute")
        self._graphics = _find_list("Graphics")
        self._mps = _find_list("MPSCompute")
        self._count = ctypes.c_uint()
        self._capacity = 0
        self._buffer = ctypes.create_string_buffer(0)
        self._allocate_buffer(INITIAL_ENTRIES)
        self._is_mps_server: dict[int, bool] = {}  # by their process name, read once per process
        self._get_name = find_function("nvmlSystemGetProcessName")
        self._name = ctypes.create_string_buffer(1024)

    def read(self, handle: Handle) -> GpuProcessList:
        """All processes on the device.

        Raises GpuLostError, DriverGoneError.
        """
        found = GpuProcessList()
        self._add(found, self._compute, handle)
        self._add(found, self._graphics, handle)
        in_mps = self._add(found, self._mps, handle)
        servers = set(filter(self._detect_mps_server, found.memory))
        found.is_mps = bool(in_mps or servers)
        if servers and not in_mps - servers:  # its clients, if there are any, are hidden behind it
            found.is_known = False
        return found

    def forget_except(self, pids: set[int]) -> None:
        """Drop cached data of processes that have ended."""
        for pid in self._is_mps_server.keys() - pids:
            del self._is_mps_server[pid]

    def _detect_mps_server(self, pid: int) -> bool:
        known = self._is_mps_server.get(pid)
        if known is None:
            code = self._get_name(ctypes.c_uint(pid), self._name, len(self._name))
            known = code == 0 and MPS_SERVER in self._name.value.decode(errors="replace")
            self._is_mps_server[pid] = known
        return known

    def _add(self, found: GpuProcessList, function: Function, handle: Handle) -> set[int]:
        """Merge one list; return its pids."""
        code = self._read_list(function, handle)
        if code:
            # Without the graphics or MPS list the result is still complete, without the compute list it is not.
            found.is_known = found.is_known and function is not self._compute
            if not is_absent(code) or code == pynvml.NVML_ERROR_NO_PERMISSION:
                raise_if_fatal(code)
                found.is_known = False
                found.failures.append(f"the process list could not be read: {describe(code)}")
            return set()
        pids = set()
        raw = ctypes.string_at(self._buffer, self._count.value * ENTRY.size)
        for pid, memory, _gpu_instance, _compute_instance in ENTRY.iter_unpack(raw):
            # The lists overlap: a process on two of them holds its memory once.
            pids.add(pid)
            known = found.memory.get(pid)
            reported = None if memory == NOT_AVAILABLE else memory
            found.memory[pid] = reported if known is None else max(known, reported or 0)
        return pids

    def _read_list(self, function: Function, handle: Handle) -> int:
        """Read a list into the buffer; enlarge the buffer and retry if the list does not fit."""
        code = INSUFFICIENT_SIZE
        for _try in range(MAX_TRIES):
            self._count.value = self._capacity
            code = function(handle, ctypes.byref(self._count), self._buffer)
            if code != INSUFFICIENT_SIZE:
                break
            self._allocate_buffer(max(self._count.value, self._capacity) * 2)
        return code

    def _allocate_buffer(self, entries: int) -> None:
        self._capacity = entries
        self._buffer = ctypes.create_string_buffer(entries * ENTRY.size)


def _find_list(kind: str) -> Function:
    """Version 3 if available; drivers before 510 have only version 2, with the same entries."""
    return find_function(f"nvmlDeviceGet{kind}RunningProcesses_v3", f"nvmlDeviceGet{kind}RunningProcesses_v2")
