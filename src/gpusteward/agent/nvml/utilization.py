"""What each process on a device uses, since we last looked.

Two calls tell it, and on some drivers one of them finds nothing on a device that is plainly busy. The newer one is
asked first, the other where it is not there or has nothing to say; whichever spoke is asked first next time.
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
    NOT_THERE,
    NOTHING_NOW,
    Handle,
    describe,
    find_function,
    is_absent,
    raise_if_fatal,
)
from gpusteward.agent.nvml.signals import Signals

SIGNAL = "utilization_mean_ratio"
UTILIZATION_SAMPLES = 1  # NVML_GPU_UTILIZATION_SAMPLES
SAMPLE = struct.Struct("<QI4x")  # nvmlSample_t: when, how much
MAX_SAMPLES = 256  # a driver keeps about 100 samples, 16 seconds of them

FIRST_LOOK_BACK_SECONDS = 5
"""How far back the first read looks: one usual cycle. All that the driver kept would be stale."""


def first_look_back() -> int:
    """Where to begin, in the driver's time: microseconds since 1970."""
    return int((time.time() - FIRST_LOOK_BACK_SECONDS) * 1e6)


def look_back(seen: int) -> int:
    """Where to go on from. After the clock was set back, what was seen last would lie ahead of all that comes."""
    return seen if seen <= time.time() * 1e6 else first_look_back()


class SampleReader:
    """The utilization samples of one device."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._function = find_function("nvmlDeviceGetSamples")
        self._seen = first_look_back()
        self._kind = ctypes.c_uint()
        self._count = ctypes.c_uint()
        self._buffer = ctypes.create_string_buffer(MAX_SAMPLES * SAMPLE.size)
        self._is_supported = True

    def read(self, wanted: frozenset[str], into: Signals) -> Iterator[str]:
        """Put the mean of the new samples into `into`, if there are any; yield what went wrong.

        Raises GpuLostError, DriverGoneError.
        """
        if SIGNAL not in wanted or not self._is_supported:
            return
        code = self._ask()
        if code == 0:
            self._take_mean(into)
        elif code in NOT_THERE:
            self._is_supported = False
        elif not is_absent(code):
            raise_if_fatal(code)
            yield f"nvmlDeviceGetSamples: {describe(code)}"

    def _ask(self) -> int:
        self._count.value = MAX_SAMPLES
        self._seen = look_back(self._seen)
        kind, count = ctypes.byref(self._kind), ctypes.byref(self._count)
        return self._function(
            self._handle, UTILIZATION_SAMPLES, ctypes.c_ulonglong(self._seen), kind, count, self._buffer
        )

    def _take_mean(self, into: Signals) -> None:
        raw = ctypes.string_at(self._buffer, min(self._count.value, MAX_SAMPLES) * SAMPLE.size)
        samples = [(at, value) for at, value in SAMPLE.iter_unpack(raw) if at > self._seen and value <= 100]
        if samples:
            self._seen = max(at for at, _value in samples)
            into[SIGNAL] = sum(value for _at, value in samples) / len(samples) / 100


INITIAL_ENTRIES = 128
MAX_TRIES = 5

LEGACY = struct.Struct("<I4xQIIII")  # nvmlProcessUtilizationSample_t: pid, when, SM, memory, encoder, decoder
MODERN = struct.Struct("<QIIIIIII4x")  # nvmlProcessUtilizationInfo_v1_t: when, pid, the same four, JPEG, OFA
MODERN_HEADER = struct.Struct("<IIQQ")  # nvmlProcessesUtilizationInfo_v1_t: version, count, last seen, samples

Sample = tuple[int, int, tuple[int, int, int, int]]  # when, pid, percent of SM, memory, encoder, decoder


@dataclass(frozen=True, slots=True)
class ProcessUtilization:
    """Shares of time that a process kept each engine busy; None where nobody can tell."""

    sm: float | None = 0.0
    memory: float | None = 0.0
    encoder: float | None = 0.0
    decoder: float | None = 0.0


IDLE = ProcessUtilization()
UNKNOWN = ProcessUtilization(None, None, None, None)


class _UtilizationCall(ABC):
    """One of the two calls, on one device."""

    entry: struct.Struct

    def __init__(self, handle: Handle) -> None:
        self.is_supported = True
        self.doubtful: set[int] = set()  # processes of whom the last read had a sample that cannot be true
        self._handle = handle
        self._seen = first_look_back()
        self._allocate_buffer(INITIAL_ENTRIES)

    def read(self) -> list[Sample] | None:
        """Samples newer than those before, none if there are none; None if the call failed.

        Raises GpuLostError, DriverGoneError.
        """
        self._seen = look_back(self._seen)
        self.doubtful = set()
        code, count = INSUFFICIENT_SIZE, 0
        for _try in range(MAX_TRIES):
            code, count = self._call()
            if code != INSUFFICIENT_SIZE:
                break
            self._allocate_buffer(max(count, self._capacity) * 2)
        if code:
            raise_if_fatal(code)
            self.is_supported = code not in NOT_THERE
            return [] if code in NOTHING_NOW else None
        raw = ctypes.string_at(self._buffer, min(count, self._capacity) * self.entry.size)
        return self._sift(sample for sample in self._decode(raw) if sample[0] > self._seen)

    def _sift(self, told: Iterable[Sample]) -> list[Sample]:
        """Drivers are known to fill samples with rubbish: percents in the millions, processes numbered 0."""
        samples: list[Sample] = []
        for sample in told:
            _at, pid, percents = sample
            if pid and max(percents) <= 100:
                samples.append(sample)
            elif pid:
                self.doubtful.add(pid)
        self._seen = max((at for at, _pid, _percents in samples), default=self._seen)
        return samples

    def _allocate_buffer(self, entries: int) -> None:
        self._capacity = entries
        self._buffer = ctypes.create_string_buffer(entries * self.entry.size)

    @abstractmethod
    def _call(self) -> tuple[int, int]:
        """NVML's code, and how many entries there are."""

    @abstractmethod
    def _decode(self, raw: bytes) -> Iterable[Sample]:
        """The entries as samples."""


class _Modern(_UtilizationCall):
    entry = MODERN

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        self._function = find_function("nvmlDeviceGetProcessesUtilizationInfo")
        self._header = ctypes.create_string_buffer(MODERN_HEADER.size)

    def _call(self) -> tuple[int, int]:
        version, where = pynvml.ProcessesUtilizationInfo_v1, ctypes.addressof(self._buffer)
        MODERN_HEADER.pack_into(self._header, 0, version, self._capacity, self._seen, where)
        code = self._function(self._handle, self._header)
        return code, MODERN_HEADER.unpack(self._header)[1]

    def _decode(self, raw: bytes) -> Iterable[Sample]:
        return [(at, pid, (sm, mem, enc, dec)) for at, pid, sm, mem, enc, dec, _jpeg, _ofa in MODERN.iter_unpack(raw)]


class _Legacy(_UtilizationCall):
    entry = LEGACY

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        self._function = find_function("nvmlDeviceGetProcessUtilization")
        self._count = ctypes.c_uint()

    def _call(self) -> tuple[int, int]:
        self._count.value = self._capacity
        seen = ctypes.c_ulonglong(self._seen)
        code = self._function(self._handle, self._buffer, ctypes.byref(self._count), seen)
        return code, self._count.value

    def _decode(self, raw: bytes) -> Iterable[Sample]:
        return [(at, pid, (sm, mem, enc, dec)) for pid, at, sm, mem, enc, dec in LEGACY.iter_unpack(raw)]


class ProcessUtilizationReader:
    """The uses of all processes of one device."""

    def __init__(self, handle: Handle) -> None:
        self._tellers: list[_UtilizationCall] = [_Modern(handle), _Legacy(handle)]

    def read(self, is_busy: Callable[[], bool]) -> dict[int, ProcessUtilization] | None:
        """Mean use by pid since the last read; who is not there was idle. None: nobody can tell.

        A device that is busy while neither call saw anybody at work contradicts itself, and is not taken for idle;
        nor is a process of whom only rubbish was told. Raises GpuLostError, DriverGoneError.
        """
        contradicts = False
        for teller in self._tellers[:]:
            samples = teller.read()
            if not teller.is_supported:
                self._tellers.remove(teller)
            elif samples is None:
                continue
            elif any(any(percents) for _at, _pid, percents in samples):
                self._tellers.sort(key=lambda other: other is not teller)
                return dict.fromkeys(teller.doubtful, UNKNOWN) | _average(samples)
            elif not (contradicts := contradicts or bool(teller.doubtful) or is_busy()):
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
