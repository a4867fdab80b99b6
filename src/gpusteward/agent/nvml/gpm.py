"""Profiling signals by GPM: engine activity between two samples, on Hopper and newer GPUs and their MIG instances."""

import ctypes
import math
import struct
from collections.abc import Iterator

import pynvml

from gpusteward.agent.nvml.library import UNSUPPORTED, Handle, explain_failure, find_function, raise_if_fatal
from gpusteward.agent.nvml.signals import Signals
from gpusteward.core.node.signals import PROFILING_TOTALS

METRICS = {
    "gr_engine_ratio": pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL,
    "sm_active_ratio": pynvml.NVML_GPM_METRIC_SM_UTIL,
    "sm_occupancy_ratio": pynvml.NVML_GPM_METRIC_SM_OCCUPANCY,
    "tensor_ratio": pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    "tensor_imma_ratio": pynvml.NVML_GPM_METRIC_IMMA_TENSOR_UTIL,
    "tensor_hmma_ratio": pynvml.NVML_GPM_METRIC_HMMA_TENSOR_UTIL,
    "tensor_dfma_ratio": pynvml.NVML_GPM_METRIC_DFMA_TENSOR_UTIL,
    "integer_ratio": pynvml.NVML_GPM_METRIC_INTEGER_UTIL,
    "dram_ratio": pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
    "fp64_ratio": pynvml.NVML_GPM_METRIC_FP64_UTIL,
    "fp32_ratio": pynvml.NVML_GPM_METRIC_FP32_UTIL,
    "fp16_ratio": pynvml.NVML_GPM_METRIC_FP16_UTIL,
    "pcie_tx_bytes_per_second": pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC,
    "pcie_rx_bytes_per_second": pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC,
    "nvlink_tx_bytes_per_second": pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC,
    "nvlink_rx_bytes_per_second": pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC,
    # Counted since the node was started; older versions of pynvml have no names for them.
    "sm_cycles_total": 248,
    "sm_active_cycles_total": 249,
    "mma_active_cycles_total": 250,
    "dmma_active_cycles_total": 251,
    "hmma_active_cycles_total": 252,
    "imma_active_cycles_total": 253,
    "dfma_active_cycles_total": 254,
    "pcie_tx_bytes_total": 255,
    "pcie_rx_bytes_total": 256,
    "integer_active_cycles_total": 257,
    "fp64_active_cycles_total": 258,
    "fp32_active_cycles_total": 259,
    "fp16_active_cycles_total": 260,
}
MEBIBYTE = 1_048_576

HEADER = struct.Struct("<IIQQ")  # nvmlGpmMetricsGet_t: version, number of metrics, both samples
METRIC = struct.Struct("<Iid24x")  # nvmlGpmMetric_t: metric, return code, value, names


def supports_gpm(device: Handle) -> bool:
    """Whether the device supports GPM; False if the driver does not know the call."""
    try:
        return bool(pynvml.nvmlGpmQueryDeviceSupport(device).isSupportedDevice)
    except pynvml.NVMLError as error:
        raise_if_fatal(error.value)
        return False


class GpmReader:
    """Profiles one device or GPU instance: keeps the last sample and compares it with the next."""

    def __init__(self, device: Handle, gpu_instance_id: int | None = None) -> None:
        self.is_supported = supports_gpm(device)
        is_whole = gpu_instance_id is None
        self._sample = find_function("nvmlGpmSampleGet" if is_whole else "nvmlGpmMigSampleGet")
        self._arguments = (device,) if is_whole else (device, gpu_instance_id)
        self._compare = find_function("nvmlGpmMetricsGet")
        self._before: Handle | None = None
        self._spare: Handle | None = None
        self._unknown: frozenset[str] = frozenset()  # to the driver
        self._wanted: frozenset[str] = frozenset()
        self._names: list[str] = []
        self._query = ctypes.create_string_buffer(0)

    def read(self, wanted: frozenset[str], into: Signals) -> Iterator[str]:
        """Put the activity since the last read into `into`, nothing at the first read; yield error texts.

        Raises GpuLostError, DriverGoneError.
        """
        if not self.is_supported:
            return
        if wanted is not self._wanted and wanted != self._wanted:
            self._prepare(wanted)
        if not self._names:
            return
        code = self._take_sample(into)
        if code in UNSUPPORTED and not PROFILING_TOTALS.isdisjoint(self._names):
            self._unknown = PROFILING_TOTALS  # an older driver may refuse all metrics because of these
            self._prepare(wanted)
        elif code in UNSUPPORTED:
            self.is_supported = False
        else:
            yield from explain_failure("GPM", code)

    def supported(self) -> Iterator[str]:
        if self.is_supported:
            yield from METRICS.keys() - self._unknown

    def _take_sample(self, into: Signals) -> int:
        """Take a sample and compare it with the previous one, if any."""
        if not self._spare:
            try:
                self._spare = pynvml.nvmlGpmSampleAlloc()
            except pynvml.NVMLError as error:
                return int(error.value)
        code = self._sample(*self._arguments, self._spare)
        if code:
            return code
        before, self._before, self._spare = self._before, self._spare, self._before
        return self._metrics(before, self._before, into=into) if before else 0

    def release(self) -> None:
        """Free both samples. They are memory of this process, so this works without a driver too."""
        free = find_function("nvmlGpmSampleFree")
        for sample in (self._before, self._spare):
            if sample:
                free(sample)
        self._before = self._spare = None

    def _prepare(self, wanted: frozenset[str]) -> None:
        self._wanted = wanted
        self._names = [name for name in METRICS if name in wanted - self._unknown]
        metrics = b"".join(METRIC.pack(METRICS[name], 0, 0.0) for name in self._names)
        self._query = ctypes.create_string_buffer(
            bytes(HEADER.size) + metrics, ctypes.sizeof(pynvml.c_nvmlGpmMetricsGet_t)
        )

    def _metrics(self, before: Handle, now: Handle, *, into: Signals) -> int:
        first, second = (ctypes.cast(sample, ctypes.c_void_p).value for sample in (before, now))
        HEADER.pack_into(self._query, 0, pynvml.NVML_GPM_METRICS_GET_VERSION, len(self._names), first, second)
        code = self._compare(self._query)
        if code == 0:
            raw = ctypes.string_at(ctypes.byref(self._query, HEADER.size), len(self._names) * METRIC.size)
            for name, (_metric, failed, value) in zip(self._names, METRIC.iter_unpack(raw), strict=True):
                if failed or not math.isfinite(value) or value < 0:
                    continue
                if name.endswith("_total"):
                    into[name] = value
                elif not name.endswith("_ratio"):
                    into[name] = value * MEBIBYTE
                elif value <= 100:
                    into[name] = value / 100
        return code
