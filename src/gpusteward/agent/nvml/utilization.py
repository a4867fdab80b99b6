"""Utilization since the last read: the mean of a device, and the use of each process on it.

NVML has two calls for the utilization of processes. On some drivers one of them returns nothing although the device is
busy. The newer call is made first, the older one if the newer is missing or returns nothing; the call that returned
samples is made first next time.
"""

import ctypes
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pynvml

from gpusteward.agent.nvml.library import (
    INSUFFICIENT_SIZE,
    NO_DATA_NOW,
    UNSUPPORTED,
    Handle,
    explain_failure,
    find_function,
    raise_if_fatal,
)
from gpusteward.agent.nvml.signals import Signals

MEAN_SIGNAL = "utilization_mean_ratio"
UTILIZATION_SAMPLES = 1  # NVML_GPU_UTILIZATION_SAMPLES
SAMPLE = struct.Struct("<QI4x")  # nvmlSample_t: timestamp, value
MAX_SAMPLES = 256  # a driver keeps about 100 samples, covering 16 seconds

FIRST_WINDOW_SECONDS = 5
"""How far back the first read looks: one usual cycle. The driver's older samples would be stale."""


def initial_since() -> int:
    """Timestamp after which the first read takes samples, in the driver's unit: microseconds since 1970."""
    return int((time.time() - FIRST_WINDOW_SECONDS) * 1e6)


def next_since(seen: int) -> int:
    """Timestamp for the next read. If the clock was set back, the last timestamp would be newer than all samples."""
    return seen if seen <= time.time() * 1e6 else initial_since()


class SampleReader:
    """Reads the mean utilization of one device from the driver's samples."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._function = find_function("nvmlDeviceGetSamples")
        self._since = initial_since()
        self._kind = ctypes.c_uint()
        self._count = ctypes.c_uint()
        self._buffer = ctypes.create_string_buffer(MAX_SAMPLES * SAMPLE.size)
        self._is_supported = True

    def read(self, wanted: frozenset[str], into: Signals) -> Iterator[str]:
        """Put the mean of the new samples into `into`, if there are any; yield error texts.

        Raises GpuLostError, DriverGoneError.
        """
        if MEAN_SIGNAL not in wanted or not self._is_supported:
            return
        self._count.value = MAX_SAMPLES
        self._since = next_since(self._since)
        kind, count, since = ctypes.byref(self._kind), ctypes.byref(self._count), ctypes.c_ulonglong(self._since)
        code = self._function(self._handle, UTILIZATION_SAMPLES, since, kind, count, self._buffer)
        if code == 0:
            raw = ctypes.string_at(self._buffer, min(self._count.value, MAX_SAMPLES) * SAMPLE.size)
            samples = [(at, value) for at, value in SAMPLE.iter_unpack(raw) if at > self._since and value <= 100]
            if samples:
                self._since = max(at for at, _value in samples)
                into[MEAN_SIGNAL] = sum(value for _at, value in samples) / len(samples) / 100
        elif code in UNSUPPORTED:
            self._is_supported = False
        else:
            yield from explain_failure("nvmlDeviceGetSamples", code)

    def supported(self) -> Iterator[str]:
        if self._is_supported:
            yield MEAN_SIGNAL


INITIAL_ENTRIES = 128
MAX_TRIES = 5

LEGACY_ENTRY = struct.Struct("<I4xQIIII")  # nvmlProcessUtilizationSample_t: pid, time, SM, memory, encoder, decoder
MODERN_ENTRY = struct.Struct("<QIIIIIII4x")  # nvmlProcessUtilizationInfo_v1_t: time, pid, the same four, JPEG, OFA
MODERN_HEADER = struct.Struct("<IIQQ")  # nvmlProcessesUtilizationInfo_v1_t: version, count, last timestamp, samples

Sample = tuple[int, int, tuple[int, int, int, int]]  # timestamp, pid, percent of SM, memory, encoder, decoder


@dataclass(frozen=True, slots=True)
class ProcessUtilization:
    """Share of time in which a process used each engine; None is unknown."""

    sm: float | None = 0.0
    memory: float | None = 0.0
    encoder: float | None = 0.0
    decoder: float | None = 0.0


IDLE = ProcessUtilization()
UNKNOWN = ProcessUtilization(None, None, None, None)


class _UtilizationCall(ABC):
    """One of the two NVML calls, on one device."""

    entry: struct.Struct

    def __init__(self, handle: Handle) -> None:
        self.is_supported = True
        self.invalid_pids: set[int] = set()  # processes with an impossible sample in the last read
        self._handle = handle
        self._since = initial_since()
        self._allocate_buffer(INITIAL_ENTRIES)

    def read(self) -> list[Sample] | None:
        """Samples since the last read, possibly none; None if the call failed.

        Raises GpuLostError, DriverGoneError.
        """
        self._since = next_since(self._since)
        self.invalid_pids = set()
        code, count = INSUFFICIENT_SIZE, 0
        for _try in range(MAX_TRIES):
            code, count = self._call()
            if code != INSUFFICIENT_SIZE:
                break
            self._allocate_buffer(max(count, self._capacity) * 2)
        if code:
            raise_if_fatal(code)
            self.is_supported = code not in UNSUPPORTED
            return [] if code in NO_DATA_NOW else None
        raw = ctypes.string_at(self._buffer, min(count, self._capacity) * self.entry.size)
        return self._filter_valid(sample for sample in self._decode(raw) if sample[0] > self._since)

    def _filter_valid(self, reported: Iterable[Sample]) -> list[Sample]:
        """Drop impossible samples: some drivers return percentages in the millions or pid 0."""
        samples: list[Sample] = []
        for sample in reported:
            _at, pid, percents = sample
            if pid and max(percents) <= 100:
                samples.append(sample)
            elif pid:
                self.invalid_pids.add(pid)
        self._since = max((at for at, _pid, _percents in samples), default=self._since)
        return samples

    def _allocate_buffer(self, entries: int) -> None:
        self._capacity = entries
        self._buffer = ctypes.create_string_buffer(entries * self.entry.size)

    @abstractmethod
    def _call(self) -> tuple[int, int]:
        """Return NVML's code and the number of entries."""

    @abstractmethod
    def _decode(self, raw: bytes) -> Iterable[Sample]:
        """Convert the entries to samples."""


class _Modern(_UtilizationCall):
    entry = MODERN_ENTRY

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        self._function = find_function("nvmlDeviceGetProcessesUtilizationInfo")
        self._header = ctypes.create_string_buffer(MODERN_HEADER.size)

    def _call(self) -> tuple[int, int]:
        version, where = pynvml.ProcessesUtilizationInfo_v1, ctypes.addressof(self._buffer)
        MODERN_HEADER.pack_into(self._header, 0, version, self._capacity, self._since, where)
        code = self._function(self._handle, self._header)
        return code, MODERN_HEADER.unpack(self._header)[1]

    def _decode(self, raw: bytes) -> Iterable[Sample]:
        """JPEG decoders and optical flow count as decoder: they are video engines too."""
        return [
            (at, pid, (sm, mem, enc, max(dec, jpeg, ofa)))
            for at, pid, sm, mem, enc, dec, jpeg, ofa in MODERN_ENTRY.iter_unpack(raw)
        ]


class _Legacy(_UtilizationCall):
    entry = LEGACY_ENTRY

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        self._function = find_function("nvmlDeviceGetProcessUtilization")
        self._count = ctypes.c_uint()

    def _call(self) -> tuple[int, int]:
        self._count.value = self._capacity
        seen = ctypes.c_ulonglong(self._since)
        code = self._function(self._handle, self._buffer, ctypes.byref(self._count), seen)
        return code, self._count.value

    def _decode(self, raw: bytes) -> Iterable[Sample]:
        return [(at, pid, (sm, mem, enc, dec)) for pid, at, sm, mem, enc, dec in LEGACY_ENTRY.iter_unpack(raw)]


class ProcessUtilizationReader:
    """Reads the utilization of all processes of one device."""

    def __init__(self, handle: Handle) -> None:
        self._calls: list[_UtilizationCall] = [_Modern(handle), _Legacy(handle)]

    def read(self, is_busy: Callable[[], bool]) -> dict[int, ProcessUtilization] | None:
        """Mean utilization by pid since the last read; absent processes were idle. None: unknown.

        If the device is busy but neither call returns an active process, the result is unknown, not idle. The same
        holds for a process with only impossible samples. Raises GpuLostError, DriverGoneError.
        """
        contradicts = False
        for call in self._calls[:]:
            samples = call.read()
            if not call.is_supported:
                self._calls.remove(call)
            elif samples is None:
                continue
            elif any(any(percents) for _at, _pid, percents in samples):
                self._calls.sort(key=lambda other: other is not call)
                return dict.fromkeys(call.invalid_pids, UNKNOWN) | _average(samples)
            elif not (contradicts := contradicts or bool(call.invalid_pids) or is_busy()):
                return {}
        return None


def _average(samples: list[Sample]) -> dict[int, ProcessUtilization]:
    by_pid: dict[int, list[tuple[int, int, int, int]]] = {}
    for _at, pid, percents in samples:
        by_pid.setdefault(pid, []).append(percents)
    return {
        pid: ProcessUtilization(*(sum(engine) / len(own) / 100 for engine in zip(*own, strict=True)))
        for pid, own in by_pid.items()
    }
