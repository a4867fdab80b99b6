"""Samples as a Prometheus remote-write request: protobuf in one uncompressed Snappy block."""

import re
import struct
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from operator import itemgetter
from types import MappingProxyType

Sample = tuple[str, str, float, float]  # name, rendered labels, value, unix seconds
BATCH = 500_000
_HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_POINT = struct.Struct("<BBBd")  # a field with its length, and the value in it; the time follows
_LITERAL_BYTES = 60_000


def write_samples(url: str, samples: Iterable[Sample], headers: Mapping[str, str] = MappingProxyType({})) -> None:
    """Send all samples in the order of time: engines refuse samples that are older than the last of their series."""
    ordered = sorted(samples, key=itemgetter(3))
    for first in range(0, len(ordered), BATCH):
        body = compress(encode_request(ordered[first : first + BATCH]))
        request = urllib.request.Request(url, data=body, headers={**_HEADERS, **headers})
        with urllib.request.urlopen(request, timeout=60) as response:
            assert response.status in (200, 204)


def encode_request(samples: Iterable[Sample]) -> bytes:
    """A `WriteRequest`; each series once, with all its samples."""
    points: dict[tuple[str, str], list[bytes]] = {}
    for name, labels, value, at in samples:
        points.setdefault((name, labels), []).append(_encode_point(value, at))
    return b"".join(_field(1, _encode_names(*series) + b"".join(own)) for series, own in points.items())


def _encode_names(metric: str, labels: str) -> bytes:
    """All labels in their order."""
    before, after = _encode_labels(labels)
    return before + _encode_label("__name__", metric) + after


@cache
def _encode_labels(labels: str) -> tuple[bytes, bytes]:
    """Those before and after the name of the metric."""
    before, after = bytearray(), bytearray()
    for name, value in sorted(_LABEL.findall(labels)):
        part = before if name < "__name__" else after
        part += _encode_label(name, _unescape(value))
    return bytes(before), bytes(after)


@cache
def _encode_label(name: str, value: str) -> bytes:
    return _field(1, _field(1, name.encode()) + _field(2, value.encode()))


def _encode_point(value: float, at: float) -> bytes:
    time = _encode_time(at)
    return _POINT.pack(0x12, 9 + len(time), 0x09, value) + time


@cache
def _encode_time(at: float) -> bytes:
    return b"\x10" + _varint(round(at * 1000))


def compress(data: bytes) -> bytes:
    """A Snappy block that consists of literals only."""
    return _varint(len(data)) + b"".join(_literals(data))


def _literals(data: bytes) -> Iterator[bytes]:
    for first in range(0, len(data), _LITERAL_BYTES):
        part = data[first : first + _LITERAL_BYTES]
        yield b"\xf4" + struct.pack("<H", len(part) - 1) + part  # a literal whose length has two bytes


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text)
