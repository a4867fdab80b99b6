"""What the driver sampled by itself since we last looked: the mean of a device's utilization."""

import ctypes
import struct
import time
from collections.abc import Iterator

from gpusteward.agent.nvml.library import (
    NOT_THERE,
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
ROOM = 256  # a driver keeps about 100 samples, 16 seconds of them

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
        self._buffer = ctypes.create_string_buffer(ROOM * SAMPLE.size)
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
        self._count.value = ROOM
        self._seen = look_back(self._seen)
        kind, count = ctypes.byref(self._kind), ctypes.byref(self._count)
        return self._function(
            self._handle, UTILIZATION_SAMPLES, ctypes.c_ulonglong(self._seen), kind, count, self._buffer
        )

    def _take_mean(self, into: Signals) -> None:
        raw = ctypes.string_at(self._buffer, min(self._count.value, ROOM) * SAMPLE.size)
        samples = [(at, value) for at, value in SAMPLE.iter_unpack(raw) if at > self._seen and value <= 100]
        if samples:
            self._seen = max(at for at, _value in samples)
            into[SIGNAL] = sum(value for _at, value in samples) / len(samples) / 100
