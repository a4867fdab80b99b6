"""Signals read with one NVML call each: the table, and its reader for one device.

pynvml's wrappers create objects and look up symbols on every call. Here each call of a device is bound once (function,
handle, buffer), which makes a cycle over many GPUs several times cheaper.
"""

import ctypes
import struct
from collections.abc import Collection, Iterable, Iterator, MutableMapping
from dataclasses import dataclass, replace

import pynvml

from gpusteward.agent.nvml.library import (
    UNSUPPORTED,
    Function,
    Handle,
    explain_failure,
    find_function,
    is_absent,
    raise_if_fatal,
)

Signals = MutableMapping[str, float]

PERCENT = 100
MEGA = 1_000_000
HIGHEST_TEMPERATURE = 200  # as in DCGM: a higher value means a broken sensor
HIGHEST_MILLIWATTS = 100_000_000  # more than a rack: a driver that has no value, or a broken sensor
HIGHEST_MEGAHERTZ = 100_000  # the fastest memory has a quarter of it at most
LEAST_MEMORY_BYTES = 2**20  # less than any GPU has
HIGHEST_PERFORMANCE_STATE = 15  # 32 is NVML's "unknown"
NO_VALUE_32, NO_VALUE_64 = 2**32 - 1, 2**64 - 1
"""What drivers return when they have no value."""
MEMORY_V2 = struct.pack("<I", 0x02000028)  # nvmlMemory_v2: size and version of the struct

FABRIC_INFO_V2, FABRIC_INFO_V3 = struct.pack("<I", 0x02000024), struct.pack("<I", 0x03000028)  # nvmlGpuFabricInfo


@dataclass(frozen=True, slots=True)
class Call:
    """One NVML call and the signals in its result.

    `layout` describes the buffer it writes, one signal per value; a signal named "" is ignored. `pointers` are the
    offsets in the buffer that the call gets as pointer arguments.
    """

    symbol: str
    signals: tuple[str, ...]
    arguments: tuple[int, ...] = ()
    layout: str = "<I"
    multiplier: int = 1  # multiplier and divisor convert to the base unit
    divisor: int = 1
    max_value: float = NO_VALUE_32 - 1  # as NVML reports it; a higher value is discarded
    pointers: tuple[int, ...] = (0,)
    preset: bytes = b""  # initial content of the buffer
    gate: int | None = None  # position of a value that is below `least` only if the driver has none of the values
    least: int = 1
    whole: int | None = None  # position of a value that no other one exceeds
    is_constant: bool = False  # read once, valid until the driver is loaded again
    fallback: "Call | None" = None  # used if the driver does not have the symbol or its version


def _percent(symbol: str, *signals: str, pointers: tuple[int, ...] = (0,)) -> Call:
    return Call(symbol, signals, layout="<II", divisor=PERCENT, max_value=100, pointers=pointers)


def _clock(kind: int, signal: str) -> Call:
    return Call("nvmlDeviceGetClockInfo", (signal,), (kind,), multiplier=MEGA, max_value=HIGHEST_MEGAHERTZ)


def _max_clock(kind: int, signal: str) -> Call:
    symbol = "nvmlDeviceGetMaxClockInfo"
    return Call(symbol, (signal,), (kind,), multiplier=MEGA, max_value=HIGHEST_MEGAHERTZ, is_constant=True)


def _watts(symbol: str, signal: str) -> Call:
    return Call(symbol, (signal,), divisor=1000, max_value=HIGHEST_MILLIWATTS)


def _power_limit(symbol: str, signal: str) -> Call:
    return replace(_watts(symbol, signal), gate=0)  # a limit of 0 W is none


def _pcie(counter: int, signal: str) -> Call:
    # The unit is 1000 bytes although NVML calls it KB. The call blocks for 20 ms.
    return Call("nvmlDeviceGetPcieThroughput", (signal,), (counter,), multiplier=1000)


_MEMORY = ("memory_total_bytes", "memory_free_bytes", "memory_used_bytes")
_REASONS = ("clock_event_reasons",)
_FABRIC = ("", "", "fabric_clique_id", "", "fabric_health_mask")
"""Version, error of the registration, clique, state (0: the GPU has no fabric), health."""

UTILIZATION = _percent("nvmlDeviceGetUtilizationRates", "utilization_ratio", "memory_copy_ratio")
MEMORY = Call(
    "nvmlDeviceGetMemoryInfo_v2",
    ("", "memory_total_bytes", "memory_reserved_bytes", "memory_free_bytes", "memory_used_bytes"),
    layout="<I4xQQQQ",
    max_value=NO_VALUE_64 - 1,
    preset=MEMORY_V2,
    gate=1,
    least=LEAST_MEMORY_BYTES,
    whole=1,
    # Drivers before 510 do not report reserved memory; `used` includes it there.
    fallback=Call(
        "nvmlDeviceGetMemoryInfo",
        _MEMORY,
        layout="<QQQ",
        max_value=NO_VALUE_64 - 1,
        gate=0,
        least=LEAST_MEMORY_BYTES,
        whole=0,
    ),
)
ENFORCED_POWER_LIMIT = _power_limit("nvmlDeviceGetEnforcedPowerLimit", "enforced_power_limit_watts")

CALLS: tuple[Call, ...] = (
    UTILIZATION,
    _percent("nvmlDeviceGetEncoderUtilization", "encoder_ratio", "", pointers=(0, 4)),
    _percent("nvmlDeviceGetDecoderUtilization", "decoder_ratio", "", pointers=(0, 4)),
    MEMORY,
    Call("nvmlDeviceGetTemperature", ("temperature_celsius",), (0,), max_value=HIGHEST_TEMPERATURE),
    _watts("nvmlDeviceGetPowerUsage", "power_watts"),
    _power_limit("nvmlDeviceGetPowerManagementLimit", "power_limit_watts"),
    ENFORCED_POWER_LIMIT,
    _clock(1, "sm_clock_hertz"),
    _clock(2, "memory_clock_hertz"),
    _clock(3, "video_clock_hertz"),
    _max_clock(1, "max_sm_clock_hertz"),
    _max_clock(2, "max_memory_clock_hertz"),
    Call(
        "nvmlDeviceGetCurrentClocksEventReasons",
        _REASONS,
        layout="<Q",
        max_value=NO_VALUE_64 - 1,
        fallback=Call("nvmlDeviceGetCurrentClocksThrottleReasons", _REASONS, layout="<Q", max_value=NO_VALUE_64 - 1),
    ),
    Call("nvmlDeviceGetPerformanceState", ("performance_state",), max_value=HIGHEST_PERFORMANCE_STATE),
    Call("nvmlDeviceGetFanSpeed", ("fan_ratio",), divisor=PERCENT),
    Call("nvmlDeviceGetPcieReplayCounter", ("pcie_replays_total",)),
    Call("nvmlDeviceGetCurrPcieLinkGeneration", ("pcie_link_generation",)),
    Call("nvmlDeviceGetCurrPcieLinkWidth", ("pcie_link_width",)),
    Call(
        "nvmlDeviceGetGpuFabricInfoV",
        (*_FABRIC, "fabric_health_summary"),
        layout="<I16xIIIIB3x",
        preset=FABRIC_INFO_V3,
        gate=3,
        # Older drivers have no summary.
        fallback=Call("nvmlDeviceGetGpuFabricInfoV", _FABRIC, layout="<I16xIIII", preset=FABRIC_INFO_V2, gate=3),
    ),
    _pcie(0, "pcie_throughput_tx_bytes_per_second"),
    _pcie(1, "pcie_throughput_rx_bytes_per_second"),
)


@dataclass(slots=True)
class BoundCall:
    """A call bound to its device and buffer."""

    call: Call
    function: Function
    arguments: tuple[object, ...]
    buffer: ctypes.Array[ctypes.c_char]
    layout: struct.Struct
    names: tuple[str, ...]  # "" for values that are not wanted

    def values(self) -> Iterator[tuple[str, float]]:
        """The values written by the call, in base units, without impossible ones."""
        call, reported = self.call, self.layout.unpack(self.buffer)
        if call.gate is not None and reported[call.gate] < call.least:
            return
        highest = call.max_value if call.whole is None else min(call.max_value, reported[call.whole])
        for name, value in zip(self.names, reported, strict=True):
            if name and value <= highest:
                yield name, value * call.multiplier / call.divisor


def bind(call: Call, handle: Handle, wanted: Collection[str]) -> BoundCall:
    layout = struct.Struct(call.layout)
    buffer = ctypes.create_string_buffer(call.preset, layout.size)
    pointers = [ctypes.byref(buffer, offset) for offset in call.pointers]
    names = tuple(name if name in wanted else "" for name in call.signals)
    return BoundCall(call, find_function(call.symbol), (handle, *call.arguments, *pointers), buffer, layout, names)


class CallReader:
    """Makes the calls of one device. Unsupported calls are tried once."""

    def __init__(self, handle: Handle, calls: Iterable[Call] = CALLS) -> None:
        self._handle = handle
        self._supported_calls = list(calls)
        self._wanted: frozenset[str] = frozenset()
        self._bound: list[BoundCall] = []
        self._constants: dict[str, float] = {}

    def read(self, wanted: frozenset[str], into: Signals) -> Iterator[str]:
        """Put the signals into `into`; yield error texts.

        Raises GpuLostError, DriverGoneError.
        """
        if wanted is not self._wanted and wanted != self._wanted:
            self._wanted = wanted
            self._constants.clear()
            calls = [call for call in self._supported_calls if not wanted.isdisjoint(call.signals)]
            self._bound = [bind(call, self._handle, wanted) for call in calls]
        for bound in self._bound[:]:
            code = bound.function(*bound.arguments)
            if code in UNSUPPORTED:
                code = self._fall_back(bound, into)
            elif code == 0:
                self._store(bound, into)
            yield from explain_failure(bound.call.symbol, code)
        into.update(self._constants)

    def supported(self) -> Iterator[str]:
        """The signals of the calls that the device has not refused so far."""
        for call in self._supported_calls:
            yield from call.signals

    def _store(self, bound: BoundCall, into: Signals) -> None:
        if bound.call.is_constant:
            self._constants.update(bound.values())
            self._bound.remove(bound)
        else:
            into.update(bound.values())

    def _fall_back(self, bound: BoundCall, into: Signals) -> int:
        """Use the older call from now on; without one, drop the call."""
        self._bound.remove(bound)
        self._supported_calls.remove(bound.call)
        if bound.call.fallback is None:
            return 0
        older = bind(bound.call.fallback, self._handle, self._wanted)
        code = older.function(*older.arguments)
        if code not in UNSUPPORTED:
            self._supported_calls.append(older.call)
            self._bound.append(older)
        if code == 0:
            self._store(older, into)
        return code


def read_once(call: Call, handle: Handle) -> dict[str, float]:
    """All signals of one call, read now; empty if the call fails.

    Raises GpuLostError, DriverGoneError.
    """
    found: dict[str, float] = {}
    for _reason in CallReader(handle, [call]).read(frozenset(call.signals), found):
        pass
    return found


LICENCE_SIGNAL = "vgpu_license_status"


class LicenceReader:
    """Reads the vGPU licence status: in each cycle if the device supports licences, else once."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._is_final = False
        self._status: float | None = None

    def read(self, wanted: frozenset[str], into: Signals) -> Iterator[str]:
        """Put 1 into `into` if a vGPU licence is active, 0 if not, nothing if unknown. There is no error text.

        Raises GpuLostError, DriverGoneError.
        """
        if LICENCE_SIGNAL in wanted and not self._is_final:
            self._read_licence()
        if LICENCE_SIGNAL in wanted and self._status is not None:
            into[LICENCE_SIGNAL] = self._status
        yield from ()

    def supported(self) -> Iterator[str]:
        if not self._is_final or self._status is not None:
            yield LICENCE_SIGNAL

    def _read_licence(self) -> None:
        self._status = None
        try:
            features = pynvml.nvmlDeviceGetGridLicensableFeatures_v4(self._handle)
        except pynvml.NVMLError as error:
            raise_if_fatal(error.value)
            self._is_final = error.value in UNSUPPORTED or not is_absent(error.value)
            if error.value in UNSUPPORTED:  # no licence is possible: DCGM reports 0, not nothing
                self._status = 0.0
            return
        self._is_final = not features.isGridLicenseSupported
        vgpu = pynvml.NVML_GRID_LICENSE_FEATURE_CODE_VGPU
        listed = list(features.gridLicensableFeatures)[: features.licensableFeaturesCount]
        self._status = float(any(each.featureCode == vgpu and each.featureState > 0 for each in listed))
