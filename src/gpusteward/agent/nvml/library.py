"""The NVML library: opening, closing, function lookup, and classification of its return codes."""

from collections.abc import Callable
from typing import Any

import pynvml

from gpusteward.core.errors import OutdatedError, SourceError

Function = Callable[..., int]
Handle = Any
"""An opaque pointer of pynvml, which has no type annotations."""

UNSUPPORTED = frozenset(
    (
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,  # returned for a field or sensor that the driver does not know
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_VGPU_ECC_NOT_SUPPORTED,
        pynvml.NVML_ERROR_DEPRECATED,
        pynvml.NVML_ERROR_NO_PERMISSION,
    )
)
"""Not supported until the driver is loaded again: not tried twice."""

NO_DATA_NOW = frozenset((pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_NO_DATA, pynvml.NVML_ERROR_NOT_READY))
"""No value this time."""

DRIVER_GONE = frozenset(
    (
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    )
)
"""The driver was unloaded or replaced: the library must be opened again."""

INSUFFICIENT_SIZE: int = pynvml.NVML_ERROR_INSUFFICIENT_SIZE
GPU_LOST: int = pynvml.NVML_ERROR_GPU_IS_LOST
UNKNOWN: int = pynvml.NVML_ERROR_UNKNOWN
TIMEOUT: int = pynvml.NVML_ERROR_TIMEOUT

SIMULATE_ADVICE = ", or `--source simulated` without a GPU"
"""Only the agent has this flag: other commands remove this end of an error text."""
_ADVICE = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        "libnvidia-ml.so.1 was not found. The NVIDIA driver is not installed, or not given to this container: run it"
        f" with the nvidia runtime class and NVIDIA_DRIVER_CAPABILITIES=utility{SIMULATE_ADVICE}"
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "the NVIDIA kernel driver is not loaded. Check `nvidia-smi` on the node; the agent recovers by itself when the"
        " driver is loaded"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        "no permission to open /dev/nvidiactl. The container needs the nvidia devices: run it with the nvidia runtime"
        " class and NVIDIA_VISIBLE_DEVICES=all"
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the driver library and the kernel module have different versions, as after an upgrade. Restart the agent; if"
        " that does not help, reload the kernel module or reboot the node"
    ),
}


class GpuLostError(Exception):
    """This GPU fell off the bus."""


class DriverGoneError(Exception):
    """The library must be closed and opened again."""


def open_library() -> None:
    """Initialise NVML.

    Raises SourceError, with advice, when there is no library or no driver, and OutdatedError when the driver does not
    match the library that this process has loaded.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        kind = OutdatedError if error.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH else SourceError
        raise kind(f"NVML cannot be used: {_ADVICE.get(error.value, describe(error.value))}") from error


def close_library() -> None:
    """Shut NVML down; does nothing if it is not open."""
    find_function("nvmlShutdown")()


def find_function(*names: str) -> Function:
    """The first of these functions that the driver has; else one that returns NVML_ERROR_FUNCTION_NOT_FOUND."""
    for name in names:
        try:
            function: Function = pynvml._nvmlGetFunctionPointer(name)
        except pynvml.NVMLError:
            continue
        return function
    return _function_not_found


def raise_if_fatal(code: int) -> None:
    """Raise GpuLostError or DriverGoneError for codes that affect more than one call."""
    if code == GPU_LOST:
        raise GpuLostError
    if code in DRIVER_GONE:
        raise DriverGoneError(describe(code))


def is_absent(code: int) -> bool:
    """Whether the value is unsupported or currently missing, which is not a failure."""
    return code in UNSUPPORTED or code in NO_DATA_NOW


def describe(code: int) -> str:
    return str(pynvml.NVMLError(code))


def _function_not_found(*_arguments: object) -> int:
    return int(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
