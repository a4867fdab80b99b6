"""Messages of the kubelet's pod-resources API, version 1, decoded from protobuf's wire format (pure).

Only the fields that the agent reads, under the kubelet's field numbers; all others are skipped. A few lines instead of
the protobuf library, which costs the agent 6 MB; a test compares them with the classes that protoc generates.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

_T = TypeVar("_T")


class _WireType:
    VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5


class DecodeError(ValueError):
    """The bytes are not such a message."""


@dataclass(slots=True)
class CdiDevice:
    name: str = ""


@dataclass(slots=True)
class ClaimResource:
    cdi_devices: list[CdiDevice] = field(default_factory=list)
    driver_name: str = ""
    pool_name: str = ""
    device_name: str = ""


@dataclass(slots=True)
class DynamicResource:
    claim_name: str = ""
    claim_namespace: str = ""
    claim_resources: list[ClaimResource] = field(default_factory=list)


@dataclass(slots=True)
class ContainerDevices:
    resource_name: str = ""
    device_ids: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ContainerResources:
    name: str = ""
    devices: list[ContainerDevices] = field(default_factory=list)
    dynamic_resources: list[DynamicResource] = field(default_factory=list)


@dataclass(slots=True)
class PodResources:
    name: str = ""
    namespace: str = ""
    containers: list[ContainerResources] = field(default_factory=list)


@dataclass(slots=True)
class ListPodResourcesResponse:
    pod_resources: list[PodResources] = field(default_factory=list)


_FIELDS: Mapping[type, Mapping[int, tuple[str, type]]] = {
    ListPodResourcesResponse: {1: ("pod_resources", PodResources)},
    PodResources: {1: ("name", str), 2: ("namespace", str), 3: ("containers", ContainerResources)},
    ContainerResources: {
        1: ("name", str),
        2: ("devices", ContainerDevices),
        5: ("dynamic_resources", DynamicResource),
    },
    ContainerDevices: {1: ("resource_name", str), 2: ("device_ids", str)},
    DynamicResource: {2: ("claim_name", str), 3: ("claim_namespace", str), 4: ("claim_resources", ClaimResource)},
    ClaimResource: {
        1: ("cdi_devices", CdiDevice),
        2: ("driver_name", str),
        3: ("pool_name", str),
        4: ("device_name", str),
    },
    CdiDevice: {1: ("name", str)},
}
"""Field number -> attribute and type. A field is repeated if the attribute is a list."""


def decode(data: bytes | memoryview, kind: type[_T]) -> _T:
    """Raises DecodeError."""
    message, fields = kind(), _FIELDS[kind]
    for number, content in _read_fields(memoryview(data)):
        if number in fields:
            name, content_type = fields[number]
            try:
                value: Any = str(content, "utf-8") if content_type is str else decode(content, content_type)
            except UnicodeDecodeError as error:
                raise DecodeError(f"a text is not UTF-8: {error.reason}") from error
            known = getattr(message, name)
            if isinstance(known, list):
                known.append(value)
            else:
                setattr(message, name, value)  # of several the last one is valid, as in protobuf
    return message


def _read_fields(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Numbers and contents of the length-delimited fields; fields of other wire types are skipped."""
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if not 0 < number < 2**29:
            raise DecodeError(f"invalid field number {number}")
        start, position = _find_end(data, position, wire_type)
        if position > len(data):
            raise DecodeError("truncated")
        if wire_type == _WireType.LENGTH_DELIMITED:
            yield number, data[start:position]


def _find_end(data: memoryview, position: int, wire_type: int) -> tuple[int, int]:
    """Start and end of the content of a field."""
    match wire_type:
        case _WireType.VARINT:
            return position, _read_varint(data, position)[1]
        case _WireType.FIXED64:
            return position, position + 8
        case _WireType.LENGTH_DELIMITED:
            size, start = _read_varint(data, position)
            return start, start + size
        case _WireType.FIXED32:
            return position, position + 4
        case _:
            raise DecodeError(f"invalid wire type {wire_type}")


def _read_varint(data: memoryview, position: int) -> tuple[int, int]:
    """The number at the position, and the position after it."""
    if position < len(data) and (first := data[position]) < 0x80:  # almost all of them
        return first, position + 1
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise DecodeError("truncated")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise DecodeError("a number does not end")
