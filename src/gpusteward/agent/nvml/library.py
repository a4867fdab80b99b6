"""The NVML library: opening, closing, function lookup, and classification of its return codes."""

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pynvml

from gpusteward.core.errors import OutdatedError, SourceError
from gpusteward.messages.errors import nvml_errors as messages

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

_REASONS = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: messages.LIBRARY_NOT_FOUND,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: messages.DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_NO_PERMISSION: messages.NO_PERMISSION,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: messages.VERSION_MISMATCH,
}


class GpuLostError(Exception):
    """This GPU fell off the bus, or cannot be opened; then the text says why."""


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
        is_missing = error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
        raise kind(
            messages.UNUSABLE,
            reason=_REASONS.get(error.value) or describe(error.value),
            advice=messages.SIMULATE_ADVICE if is_missing else messages.NO_ADVICE,
        ) from error


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


def explain_failure(call: str, code: int) -> Iterator[str]:
    """The error text of a call, if its code is a failure. Raises GpuLostError, DriverGoneError."""
    if code and not is_absent(code):
        raise_if_fatal(code)
        yield f"{call}: {describe(code)}"


def address_of(handle: Handle) -> int:
    """pynvml makes a new object for the same handle."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def describe(code: int) -> str:
    return str(pynvml.NVMLError(code))


def _function_not_found(*_arguments: object) -> int:
    return int(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
