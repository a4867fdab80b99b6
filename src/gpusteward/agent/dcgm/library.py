"""The functions and structs of libdcgm that profiling needs. They are the same in DCGM 3 and 4, including the version
words, which a struct carries in its first member: its size and the version of its layout."""

import contextlib
import ctypes
from collections.abc import Mapping, Sequence
from ctypes import POINTER, c_char, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint, c_ushort
from typing import Any

from gpusteward.core.errors import SourceError
from gpusteward.logs import Log
from gpusteward.messages.errors import dcgm_errors as messages

log = Log(__name__)

SONAMES = ("libdcgm.so.4", "libdcgm.so.3")

ENTITY_GPU, ENTITY_GPU_INSTANCE = 1, 4
OPERATION_MODE_AUTO = 1
GROUP_EMPTY = 1
LIVE_DATA = 1
FIELD_UUID = 54
TYPE_DOUBLE, TYPE_INTEGER = ord("d"), ord("i")
MAX_GPUS = 32
_MAX_HIERARCHY = MAX_GPUS * 14

NOT_SUPPORTED, VERSION_MISMATCH, NO_PERMISSION, CONNECTION_NOT_VALID = -6, -12, -17, -21
GPU_NOT_SUPPORTED, REQUIRES_ROOT, MODULE_NOT_LOADED, IN_USE, PROFILING_NOT_SUPPORTED = -22, -29, -33, -34, -36
PROFILING_LIBRARY_ERROR = -37
UNSUPPORTED = frozenset((NOT_SUPPORTED, GPU_NOT_SUPPORTED, PROFILING_NOT_SUPPORTED))
"""DCGM cannot profile this GPU, such as a GeForce."""
LOST = frozenset((-9, -10, -11, VERSION_MISMATCH, CONNECTION_NOT_VALID, -54, -56, -57))
"""Pending, uninitialised, timed out, other version, disconnected, paused, without NVML: the session must be opened
again."""

_ADVICE = {
    VERSION_MISMATCH: messages.USE_SAME_VERSION,
    NO_PERMISSION: messages.NEEDS_ROOT,
    REQUIRES_ROOT: messages.NEEDS_ROOT,
    MODULE_NOT_LOADED: messages.NEEDS_ROOT,
    IN_USE: messages.OTHER_PROFILER,
    PROFILING_LIBRARY_ERROR: messages.OTHER_PROFILER,
}


class EntityPair(ctypes.Structure):
    """dcgmGroupEntityPair_t"""

    _fields_ = (("group", c_int), ("id", c_uint))
    group: int
    id: int


class ConnectParameters(ctypes.Structure):
    """dcgmConnectV2Params_v2"""

    _fields_ = (("version", c_uint), ("persists", c_uint), ("timeout_ms", c_uint), ("is_unix_socket", c_uint))
    layout = 2


class MigEntity(ctypes.Structure):
    """dcgmMigHierarchyInfo_v2"""

    _fields_ = (
        ("entity", EntityPair),
        ("parent", EntityPair),
        ("gpu_uuid", c_char * 128),
        ("nvml_index", c_uint),
        ("nvml_instance_id", c_uint),
        ("nvml_compute_instance_id", c_uint),
        ("nvml_profile_id", c_uint),
        ("nvml_profile_slices", c_uint),
    )
    entity: EntityPair
    gpu_uuid: bytes
    nvml_instance_id: int


class MigHierarchy(ctypes.Structure):
    """dcgmMigHierarchy_v2"""

    _fields_ = (("version", c_uint), ("count", c_uint), ("entities", MigEntity * _MAX_HIERARCHY))
    layout = 2
    count: int
    entities: Sequence[MigEntity]


class _MetricGroup(ctypes.Structure):
    """dcgmProfMetricGroupInfo_v2"""

    _fields_ = (("major", c_ushort), ("minor", c_ushort), ("count", c_uint), ("fields", c_ushort * 64))
    count: int
    fields: Sequence[int]


class MetricGroups(ctypes.Structure):
    """dcgmProfGetMetricGroups_v3"""

    _fields_ = (
        ("version", c_uint),
        ("unused", c_uint),
        ("gpu_id", c_uint),
        ("count", c_uint),
        ("groups", _MetricGroup * 10),
    )
    layout = 3
    count: int
    groups: Sequence[_MetricGroup]


class VersionInfo(ctypes.Structure):
    """dcgmVersionInfo_v2"""

    _fields_ = (("version", c_uint), ("build", c_char * 512))
    layout = 2
    build: bytes


class _Value(ctypes.Union):
    _fields_ = (("integer", c_int64), ("double", c_double), ("text", c_char * 256), ("blob", c_char * 4096))
    integer: int
    double: float
    text: bytes


class FieldValue(ctypes.Structure):
    """dcgmFieldValue_v2"""

    _fields_ = (
        ("version", c_uint),
        ("entity", EntityPair),
        ("field", c_ushort),
        ("type", c_ushort),
        ("status", c_int),
        ("unused", c_uint),
        ("microseconds", c_int64),
        ("value", _Value),
    )
    entity: EntityPair
    field: int
    type: int
    status: int
    microseconds: int
    value: _Value


_HANDLE = c_size_t
_FUNCTIONS: Mapping[str, tuple[Any, ...]] = {
    "dcgmInit": (),
    "dcgmShutdown": (),
    "dcgmStartEmbedded": (c_int, POINTER(_HANDLE)),
    "dcgmStopEmbedded": (_HANDLE,),
    "dcgmConnect_v2": (c_char_p, POINTER(ConnectParameters), POINTER(_HANDLE)),
    "dcgmDisconnect": (_HANDLE,),
    "dcgmHostengineVersionInfo": (_HANDLE, POINTER(VersionInfo)),
    "dcgmGetAllDevices": (_HANDLE, POINTER(c_uint), POINTER(c_int)),
    "dcgmGetGpuInstanceHierarchy": (_HANDLE, POINTER(MigHierarchy)),
    "dcgmProfGetSupportedMetricGroups": (_HANDLE, POINTER(MetricGroups)),
    "dcgmGroupCreate": (_HANDLE, c_int, c_char_p, POINTER(_HANDLE)),
    "dcgmGroupAddEntity": (_HANDLE, _HANDLE, c_int, c_uint),
    "dcgmGroupDestroy": (_HANDLE, _HANDLE),
    "dcgmFieldGroupCreate": (_HANDLE, c_int, POINTER(c_ushort), c_char_p, POINTER(_HANDLE)),
    "dcgmFieldGroupDestroy": (_HANDLE, _HANDLE),
    "dcgmWatchFields": (_HANDLE, _HANDLE, _HANDLE, ctypes.c_longlong, c_double, c_int),
    "dcgmUnwatchFields": (_HANDLE, _HANDLE, _HANDLE),
    "dcgmEntitiesGetLatestValues": (
        *(_HANDLE, POINTER(EntityPair), c_uint, POINTER(c_ushort), c_uint, c_uint),
        POINTER(FieldValue),
    ),
}


class DcgmError(SourceError):
    """A call of libdcgm failed. The text does not name the call: whichever finds the hostengine lost gives the same."""

    def __init__(self, code: int, text: str) -> None:
        advice = _ADVICE.get(code, messages.NO_ADVICE)
        super().__init__(messages.CALL_FAILED, code=code, reason=text, advice=advice)
        self.code = code


class Library:
    """A loaded libdcgm."""

    def __init__(self, sonames: Sequence[str] = SONAMES) -> None:
        """Load the first of these that is installed. Raises SourceError when none is, or when it is no libdcgm."""
        for name in sonames:
            with contextlib.suppress(OSError):
                self.name, loaded = name, ctypes.CDLL(name)
                break
        else:
            raise SourceError(messages.LIBRARY_NOT_FOUND, names=", ".join(sonames))
        try:
            self._functions = {name: getattr(loaded, name) for name in _FUNCTIONS}
            self._describe = loaded.errorString
        except AttributeError as error:
            raise SourceError(messages.LIBRARY_UNUSABLE, name=self.name, reason=error) from error
        for name, arguments in _FUNCTIONS.items():
            self._functions[name].argtypes = arguments
        self._describe.restype = c_char_p

    def call(self, name: str, *arguments: object) -> None:
        """Call a function. Raises DcgmError unless it returns DCGM_ST_OK."""
        if code := self._functions[name](*arguments):
            text = (self._describe(code) or b"unknown error").decode(errors="replace")
            log.debug("dcgm_call_failed", call=name, code=code, reason=text)
            raise DcgmError(code, text)


_Versioned = ConnectParameters | MigHierarchy | MetricGroups | VersionInfo


def with_version(struct: _Versioned) -> _Versioned:
    """Set the version word: the size of the struct, and the version of its layout in the highest byte."""
    struct.version = ctypes.sizeof(struct) | struct.layout << 24
    return struct
