"""Signals from NVML field values: the table, and its reader, which reads all of them in one call."""

import ctypes
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gpusteward.agent.nvml.library import UNSUPPORTED, Handle, explain_failure, find_function
from gpusteward.agent.nvml.signals import HIGHEST_TEMPERATURE, NO_VALUE_64, Signals

Key = tuple[int, int]  # field id, scope

ALL_LINKS = 0xFFFFFFFF
KIBIBYTE = 1024
NANOSECONDS = 1_000_000_000
HIGHEST_ROWS = 2**31 - 1  # above it, a negative number in an unsigned field

ENTRY = struct.Struct("<IIqqIi8s")
"""nvmlFieldValue_t: field, scope, timestamp, latency, type of the value, return code, value."""


@dataclass(frozen=True, slots=True)
class FieldSignal:
    """A signal made of field values: the sum of the first alternative that the device supports."""

    name: str
    alternatives: tuple[tuple[Key, ...], ...]
    multiplier: int = 1  # to the base unit, of a rate
    divisor: int = 1  # to the base unit, of any other value
    max_value: float = NO_VALUE_64 - 1
    is_rate: bool = False  # the field is a counter, the signal its rate


def _count(name: str, field_id: int, *newer: Key, divisor: int = 1) -> FieldSignal:
    """A field of the device; on later GPU generations replaced by `newer` ones."""
    return FieldSignal(name, (((field_id, 0),), *((other,) for other in newer)), divisor=divisor)


def _rows(name: str, field_id: int) -> FieldSignal:
    """A number of rows or pages of the memory, or a flag about them."""
    return FieldSignal(name, (((field_id, 0),),), max_value=HIGHEST_ROWS)


def _links(name: str, field_id: int) -> FieldSignal:
    """A field of the NVLinks, summed over them."""
    return FieldSignal(name, (((field_id, ALL_LINKS),),))


def _violation(name: str, field_id: int) -> FieldSignal:
    return _count(f"{name}_violation_seconds_total", field_id, divisor=NANOSECONDS)


def _nvlink_rate(name: str, scope: int) -> FieldSignal:
    return FieldSignal(name, (((138, scope), (139, scope)),), multiplier=KIBIBYTE, is_rate=True)


FIELDS: tuple[FieldSignal, ...] = (
    FieldSignal("memory_temperature_celsius", (((82, 0),),), max_value=HIGHEST_TEMPERATURE),
    _count("energy_joules_total", 83, divisor=1000),
    _count("ecc_single_bit_volatile_total", 3),
    _count("ecc_double_bit_volatile_total", 4),
    _count("ecc_single_bit_aggregate_total", 5),
    _count("ecc_double_bit_aggregate_total", 6),
    _rows("retired_pages_single_bit_total", 29),
    _rows("retired_pages_double_bit_total", 30),
    _rows("retired_pages_pending", 31),
    _rows("remapped_rows_correctable_total", 142),
    _rows("remapped_rows_uncorrectable_total", 143),
    _rows("row_remap_pending", 144),
    _rows("row_remap_failure", 145),
    _violation("power", 74),
    _violation("thermal", 75),
    _violation("sync_boost", 76),
    _violation("board_limit", 77),
    _violation("low_utilization", 78),
    _violation("reliability", 79),
    _nvlink_rate("nvlink_bytes_per_second", ALL_LINKS),
    _nvlink_rate("nvlink_l0_bytes_per_second", 0),
    # 161 to 163: Hopper. NVML documents no scope of them, and DCGM 4.6 asks without one.
    _count("nvlink_crc_flit_errors_total", 38, (163, 0)),
    _count("nvlink_crc_data_errors_total", 45),
    _count("nvlink_replay_errors_total", 52, (161, 0)),
    _count("nvlink_recovery_errors_total", 59, (162, 0), (215, ALL_LINKS)),
    _count("nvlink_dl_replay_errors_total", 161),
    _count("nvlink_dl_recovery_errors_total", 162),
    _count("nvlink_dl_crc_errors_total", 163),
    # Blackwell: summed over the links, as DCGM 4.6 asks.
    _links("nvlink_link_recoveries_successful_total", 213),
    _links("nvlink_link_recoveries_failed_total", 214),
    _links("nvlink_link_recoveries_total", 215),
)

_VALUES = tuple(struct.Struct(code) for code in ("<d", "<I", "<Q", "<Q", "<q", "<i", "<H"))
"""By nvmlValueType_t: double, unsigned int, unsigned long, unsigned and signed long long, int, unsigned short."""

_ALWAYS_UNSIGNED = frozenset((82,))
"""Drivers of the 545 branch report a wrong value type for the memory temperature."""


class FieldReader:
    """Reads the field values of one device. Unsupported fields are tried once."""

    def __init__(self, handle: Handle, clock: Callable[[], float]) -> None:
        self._handle = handle
        self._clock = clock
        self._function = find_function("nvmlDeviceGetFieldValues")
        self._wanted: frozenset[str] = frozenset()
        self._signals: tuple[FieldSignal, ...] = ()
        self._plan: list[tuple[FieldSignal, tuple[Key, ...]]] = []
        self._keys: list[Key] = []
        self._missing: set[Key] = set()
        self._is_supported = True
        self._buffer = ctypes.create_string_buffer(0)
        self._rates: dict[str, tuple[float, float]] = {}  # signal -> time and value of the last read

    def read(self, wanted: frozenset[str], into: Signals) -> Iterator[str]:
        """Put the signals into `into`; yield error texts.

        Raises GpuLostError, DriverGoneError.
        """
        if wanted is not self._wanted and wanted != self._wanted:
            self._wanted = wanted
            self._signals = tuple(signal for signal in FIELDS if signal.name in wanted)
            self._prepare()
        if not self._keys:
            return
        code = self._function(self._handle, len(self._keys), self._buffer)
        if code == 0:
            found, reasons = self._decode()
            self._combine(found, into)
            yield from reasons
        elif code in UNSUPPORTED:
            self._keys.clear()
            self._is_supported = False
        else:
            yield from explain_failure("nvmlDeviceGetFieldValues", code)

    def supported(self) -> Iterator[str]:
        """The signals whose fields the device has not refused so far."""
        return (signal.name for signal in FIELDS if self._is_supported and self._choose(signal))

    def _prepare(self) -> None:
        """One entry per field that may be supported; each signal uses its first alternative left."""
        self._plan = [(signal, keys) for signal in self._signals if (keys := self._choose(signal))]
        known = {key for signal in self._signals for keys in signal.alternatives for key in keys}
        self._keys = sorted(known - self._missing)
        entries = [ENTRY.pack(field_id, scope, 0, 0, 0, 0, bytes(8)) for field_id, scope in self._keys]
        self._buffer = ctypes.create_string_buffer(b"".join(entries), len(entries) * ENTRY.size)

    def _choose(self, signal: FieldSignal) -> tuple[Key, ...]:
        return next((keys for keys in signal.alternatives if self._missing.isdisjoint(keys)), ())

    def _decode(self) -> tuple[dict[Key, float], list[str]]:
        found: dict[Key, float] = {}
        reasons: list[str] = []
        for field_id, scope, _at, _latency, kind, code, raw in ENTRY.iter_unpack(self._buffer):
            if code == 0 and kind < len(_VALUES):
                layout = _VALUES[1 if field_id in _ALWAYS_UNSIGNED else kind]
                found[field_id, scope] = layout.unpack_from(raw)[0]
            elif code in UNSUPPORTED:
                self._missing.add((field_id, scope))
            else:
                reasons += explain_failure(f"field {field_id}", code)
        if not self._missing.isdisjoint(self._keys):
            self._prepare()
        return found, reasons

    def _combine(self, found: Mapping[Key, float], into: Signals) -> None:
        now = self._clock()
        for signal, keys in self._plan:
            try:
                value = found[keys[0]] if len(keys) == 1 else sum([found[key] for key in keys])
            except KeyError:  # a field without a value this time
                continue
            if not 0 <= value <= signal.max_value:
                continue
            if not signal.is_rate:
                into[signal.name] = value / signal.divisor
                continue
            # The rate since the last read; nothing at the first read or after a counter reset.
            at, last = self._rates.get(signal.name, (now, value))
            self._rates[signal.name] = (now, value)
            if now > at and value >= last:
                into[signal.name] = (value - last) * signal.multiplier / (now - at)
