"""The vGPU licence of a device."""

import pynvml

from gpusteward.agent.nvml.library import NOT_THERE, Handle, is_absent, raise_if_fatal
from gpusteward.agent.nvml.signals import Signals

SIGNAL = "vgpu_license_status"


class LicenceReader:
    """Asks each cycle where licences exist; once where the device says it needs none."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._is_settled = False
        self._status: float | None = None

    def read(self, wanted: frozenset[str], into: Signals) -> None:
        """Put 1 into `into` if a vGPU licence is active, 0 if none is, nothing if nobody can tell.

        Raises GpuLostError, DriverGoneError.
        """
        if SIGNAL not in wanted:
            return
        if not self._is_settled:
            self._ask()
        if self._status is not None:
            into[SIGNAL] = self._status

    def _ask(self) -> None:
        self._status = None
        try:
            features = pynvml.nvmlDeviceGetGridLicensableFeatures_v4(self._handle)
        except pynvml.NVMLError as error:
            raise_if_fatal(error.value)
            self._is_settled = error.value in NOT_THERE or not is_absent(error.value)
            return
        self._is_settled = not features.isGridLicenseSupported
        self._status = float(any(_is_active(feature) for feature in _listed(features)))


def _listed(features: pynvml.c_nvmlGridLicensableFeatures_v4_t) -> list[pynvml.c_nvmlGridLicensableFeature_v4_t]:
    return list(features.gridLicensableFeatures)[: features.licensableFeaturesCount]


def _is_active(feature: pynvml.c_nvmlGridLicensableFeature_v4_t) -> bool:
    is_vgpu = feature.featureCode == pynvml.NVML_GRID_LICENSE_FEATURE_CODE_VGPU
    return bool(is_vgpu and feature.featureState > 0)
