"""The library itself: opening, closing, finding a symbol, and what its return codes mean to us."""

from collections.abc import Callable
from typing import Any

import pynvml

from gpusteward.core.errors import OutdatedError, SourceError

Function = Callable[..., int]
Handle = Any
"""An opaque pointer of the binding, which has no types."""

NOT_THERE = frozenset(
    (
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,  # what a driver says to a field or a sensor it does not know
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_VGPU_ECC_NOT_SUPPORTED,
        pynvml.NVML_ERROR_DEPRECATED,
        pynvml.NVML_ERROR_NO_PERMISSION,
    )
)
"""It will not answer before the driver is loaded again: not asked twice."""

NOTHING_NOW = frozenset((pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_NO_DATA, pynvml.NVML_ERROR_NOT_READY))
"""It has nothing to tell this time."""

GONE = frozenset(
    (
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    )
)
"""The driver under the library went away: everything must be opened anew."""

INSUFFICIENT_SIZE: int = pynvml.NVML_ERROR_INSUFFICIENT_SIZE
LOST: int = pynvml.NVML_ERROR_GPU_IS_LOST
UNKNOWN: int = pynvml.NVML_ERROR_UNKNOWN
TIMEOUT: int = pynvml.NVML_ERROR_TIMEOUT

SIMULATE = ", or `--source simulated` without a GPU"
"""Only the agent has that flag: other commands leave this end of a reason away."""
_CURES = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        "libnvidia-ml.so.1 was not found. The NVIDIA driver is not installed, or not given to this container: run it"
        f" with the nvidia runtime class and NVIDIA_DRIVER_CAPABILITIES=utility{SIMULATE}"
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "the NVIDIA kernel driver is not loaded. Check `nvidia-smi` on the node; the agent comes back by itself when"
        " the driver does"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        "no permission to open /dev/nvidiactl. The container needs the nvidia devices: run it with the nvidia runtime"
        " class and NVIDIA_VISIBLE_DEVICES=all"
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the driver's library and its kernel module have different versions, as after an upgrade. Restart the agent; if"
        " that does not help, reload the kernel module or reboot the node"
    ),
}


class GpuLostError(Exception):
    """This GPU fell off the bus."""


class DriverGoneError(Exception):
    """The library must be closed and opened again."""


def open_library() -> None:
    """Initialise NVML.

    Raises SourceError, with what helps, when there is no library or no driver, and OutdatedError when the driver is
    another one than that whose library this program has loaded.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        kind = OutdatedError if error.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH else SourceError
        raise kind(f"NVML cannot be used: {_CURES.get(error.value, describe(error.value))}") from error


def close_library() -> None:
    """Shut NVML down; a library that says it is not open is closed enough."""
    find_function("nvmlShutdown")()


def find_function(*names: str) -> Function:
    """The first of these symbols that the driver has; one that says so where it has none."""
    for name in names:
        try:
            function: Function = pynvml._nvmlGetFunctionPointer(name)
        except pynvml.NVMLError:
            continue
        return function
    return _function_not_found


def raise_if_fatal(code: int) -> None:
    """Raise for what ends more than one call: GpuLostError, DriverGoneError."""
    if code == LOST:
        raise GpuLostError
    if code in GONE:
        raise DriverGoneError(describe(code))


def is_absent(code: int) -> bool:
    """Not there for good, or nothing to tell now: absence, not failure."""
    return code in NOT_THERE or code in NOTHING_NOW


def describe(code: int) -> str:
    return str(pynvml.NVMLError(code))


def _function_not_found(*_arguments: object) -> int:
    return int(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
