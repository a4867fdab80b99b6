"""Samples as a Prometheus remote-write request: protobuf in one uncompressed Snappy block."""

import re
import struct
import urllib.request
from collections.abc import Iterable, Iterator, Mapping

from tests.analyzer.engines import Sample

BATCH = 20_000
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_LITERAL_BYTES = 60_000


def write_samples(url: str, samples: Iterable[Sample], headers: Mapping[str, str]) -> None:
    """Send all samples in the order of time: engines refuse samples that are older than the last of their series."""
    ordered = sorted(samples, key=lambda sample: sample[3])
    for first in range(0, len(ordered), BATCH):
        body = compress(b"".join(map(encode_series, ordered[first : first + BATCH])))
        request = urllib.request.Request(url, data=body, headers={**_HEADERS, **headers})
        with urllib.request.urlopen(request, timeout=60) as response:
            assert response.status in (200, 204)


_HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}


def encode_series(sample: Sample) -> bytes:
    """`WriteRequest.timeseries` with one sample."""
    name, labels, value, at = sample
    pairs = sorted([("__name__", name), *((key, _unescape(text)) for key, text in _LABEL.findall(labels))])
    encoded = b"".join(_field(1, _field(1, key.encode()) + _field(2, text.encode())) for key, text in pairs)
    point = b"\x09" + struct.pack("<d", value) + b"\x10" + _varint(int(at * 1000))
    return _field(1, encoded + _field(2, point))


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
    return text.replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\")
