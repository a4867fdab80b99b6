"""Unary gRPC calls, one at a time, on a connected socket: the small part of HTTP/2 (RFC 9113) that they need.

Measured: grpclib with asyncio and protobuf costs the agent 7 MB more than this module with hpack.
Requests must be small: they are sent without regard to the flow control windows of the server, which begin at 64 KiB.
"""

import socket
import time
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

import hpack

HEADER_LIMIT_BYTES = 64 * 1024  # of one header block; gRPC servers allow themselves 8 to 16 KiB
MAX_FRAME_BYTES = 16 * 1024  # the default of HTTP/2, which this client never raises
MAX_WINDOW_BYTES = 2**31 - 1
DEFAULT_WINDOW_BYTES = 2**16 - 1
PREFIX_BYTES = 5  # of a message: whether it is compressed, and its size
UNIMPLEMENTED = 12

_ACK = _END_STREAM = 0x1
_END_HEADERS, _PADDED, _PRIORITY = 0x4, 0x8, 0x20
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_ENABLE_PUSH, _INITIAL_WINDOW_SIZE, _MAX_HEADER_LIST_SIZE = 2, 4, 6
_STATUS_NAMES = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
]


class ClosedError(ConnectionError):
    """The server closed the connection or the stream before the response was complete."""


class GrpcProtocolError(Exception):
    """The server sent what is not gRPC over HTTP/2."""


class MessageTooLargeError(Exception):
    """The response is above the size limit."""


class GrpcStatusError(Exception):
    """The server returned a gRPC status other than OK."""

    def __init__(self, status: int, message: str) -> None:
        name = _STATUS_NAMES[status] if status < len(_STATUS_NAMES) else f"status {status}"
        super().__init__(f"{name} {message}".rstrip())
        self.status = status


class _FrameType:
    DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)


class _Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


class GrpcConnection:
    """A connection to a gRPC server. After any error it must be closed and not be used again."""

    def __init__(self, connected: socket.socket, *, limit_bytes: int) -> None:
        """`limit_bytes`: the largest response that is read."""
        self.is_usable = True  # False: the server accepts no further call on this connection
        self._socket = connected
        self._limit_bytes = limit_bytes
        self._deadline = 0.0
        self._received = bytearray()
        self._decoder = hpack.Decoder(HEADER_LIMIT_BYTES)
        self._next_stream = 1
        self._consumed_bytes = 0  # of the connection's receive window, since its last update
        self._opening = _PREFACE + _encode_settings() + _encode_window_update(MAX_WINDOW_BYTES - DEFAULT_WINDOW_BYTES)

    def call(self, method: str, message: bytes, *, deadline: float) -> bytes:
        """The response to one message; `deadline` in the time of `time.monotonic`.

        Raises TimeoutError, ClosedError or another OSError, GrpcProtocolError, MessageTooLargeError, GrpcStatusError.
        """
        self._deadline = deadline
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        self._send(self._opening + _encode_request(stream, method, message))
        self._opening = b""
        response = _CallResponse(self._limit_bytes)
        while not response.is_complete:
            self._handle(self._read_frame(), stream, response)
        if self._consumed_bytes:
            self._opening, self._consumed_bytes = _encode_window_update(self._consumed_bytes), 0
        return response.read_message()

    def close(self) -> None:
        self._socket.close()

    def _handle(self, frame: _Frame, stream: int, response: "_CallResponse") -> None:
        is_ours, ends = frame.stream == stream, bool(frame.flags & _END_STREAM)
        match frame.kind:
            case _FrameType.DATA:
                self._consumed_bytes += len(frame.payload)
                if is_ours:
                    response.add_data(_remove_padding(frame), ends=ends)
            case _FrameType.HEADERS:
                headers = self._read_headers(frame)  # of any stream: decoding changes the compression state
                if is_ours:
                    response.add_headers(headers, ends=ends)
            case _FrameType.SETTINGS | _FrameType.PING if not frame.flags & _ACK:
                reply = frame.payload if frame.kind == _FrameType.PING else b""
                self._send(_encode_frame(frame.kind, _ACK, 0, reply))
            case _FrameType.RST_STREAM if is_ours:
                raise ClosedError(f"the stream was reset with code {int.from_bytes(frame.payload)}")
            case _FrameType.GOAWAY:
                self.is_usable = False  # it still responds to streams up to the last one that it names
                if stream > int.from_bytes(frame.payload[:4]) & MAX_WINDOW_BYTES:
                    raise ClosedError(f"the server shuts down with code {int.from_bytes(frame.payload[4:8])}")
            case _FrameType.PUSH_PROMISE | _FrameType.CONTINUATION:
                raise GrpcProtocolError(f"unexpected frame of type {frame.kind}")

    def _read_headers(self, frame: _Frame) -> Iterable[tuple[bytes, bytes]]:
        content = _remove_padding(frame)
        block = content[5:] if frame.flags & _PRIORITY else content
        flags = frame.flags
        while not flags & _END_HEADERS:
            more = self._read_frame()
            block, flags = block + more.payload, more.flags
            if more.kind != _FrameType.CONTINUATION or len(block) > HEADER_LIMIT_BYTES:
                raise GrpcProtocolError("a header block does not end")
        try:
            return [(name, value) for name, value in self._decoder.decode(block, raw=True)]
        except hpack.HPACKError as error:
            raise GrpcProtocolError(f"invalid headers: {error}") from error

    def _read_frame(self) -> _Frame:
        head = self._read(9)
        size = int.from_bytes(head[:3])
        if size > MAX_FRAME_BYTES:
            raise GrpcProtocolError(f"it sent {head!r}")
        return _Frame(head[3], head[4], int.from_bytes(head[5:]) & MAX_WINDOW_BYTES, self._read(size))

    def _read(self, size: int) -> bytes:
        while len(self._received) < size:
            self._socket.settimeout(self._seconds_left())
            chunk = self._socket.recv(4 * MAX_FRAME_BYTES)
            if not chunk:
                raise ClosedError("connection closed")
            self._received += chunk
        content = bytes(self._received[:size])
        del self._received[:size]
        return content

    def _send(self, data: bytes) -> None:
        self._socket.settimeout(self._seconds_left())
        self._socket.sendall(data)

    def _seconds_left(self) -> float:
        seconds = self._deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        return seconds


class _CallResponse:
    """A response while it arrives: headers, one message with its prefix, trailers."""

    def __init__(self, limit_bytes: int) -> None:
        self.is_complete = False
        self._limit_bytes = limit_bytes
        self._headers: dict[bytes, bytes] = {}
        self._body = bytearray()

    def add_headers(self, headers: Iterable[tuple[bytes, bytes]], *, ends: bool) -> None:
        self._headers |= dict(headers)
        self.is_complete = ends
        if (status := self._headers.get(b":status")) != b"200":
            raise GrpcProtocolError(f"HTTP status {status!r}")

    def add_data(self, content: bytes, *, ends: bool) -> None:
        self._body += content
        self.is_complete = ends
        if len(self._body) < PREFIX_BYTES:
            return
        if (size := self._message_bytes) > self._limit_bytes:
            raise MessageTooLargeError(f"{size} bytes")
        if len(self._body) > PREFIX_BYTES + size:
            raise GrpcProtocolError("more than one message")

    def read_message(self) -> bytes:
        """The message of a complete response. Raises GrpcStatusError, GrpcProtocolError."""
        status = self._headers.get(b"grpc-status", b"")
        if not status.isdigit() or len(status) > 9:
            raise ClosedError("the response ended without a status")
        if int(status):
            encoded = self._headers.get(b"grpc-message", b"")[:1000]  # percent-encoded UTF-8, from outside
            raise GrpcStatusError(int(status), unquote_to_bytes(encoded).decode("utf-8", "replace")[:300])
        if len(self._body) < PREFIX_BYTES + self._message_bytes or self._body[0]:
            raise GrpcProtocolError("the message is incomplete or compressed")
        return bytes(memoryview(self._body)[PREFIX_BYTES:])

    @property
    def _message_bytes(self) -> int:
        return int.from_bytes(self._body[1:PREFIX_BYTES])


def _remove_padding(frame: _Frame) -> bytes:
    if not frame.flags & _PADDED:
        return frame.payload
    padding = frame.payload[0] if frame.payload else 0
    if padding >= len(frame.payload):
        raise GrpcProtocolError("a frame consists of padding only")
    return frame.payload[1 : len(frame.payload) - padding]


def _encode_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def _encode_settings() -> bytes:
    settings = {_ENABLE_PUSH: 0, _INITIAL_WINDOW_SIZE: MAX_WINDOW_BYTES, _MAX_HEADER_LIST_SIZE: HEADER_LIMIT_BYTES}
    payload = b"".join(name.to_bytes(2) + value.to_bytes(4) for name, value in settings.items())
    return _encode_frame(_FrameType.SETTINGS, 0, 0, payload)


def _encode_window_update(size: int) -> bytes:
    return _encode_frame(_FrameType.WINDOW_UPDATE, 0, 0, size.to_bytes(4))


def _encode_request(stream: int, method: str, message: bytes) -> bytes:
    headers = (
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", "localhost"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("user-agent", "gpusteward-agent"),
    )
    # As literals that are not indexed (RFC 7541, 6.2.2), so that there is no state; lengths below 127 are one byte.
    block = b"".join(
        bytes((0, len(name))) + name.encode() + bytes((len(value),)) + value.encode() for name, value in headers
    )
    body = b"\0" + len(message).to_bytes(4) + message
    head = _encode_frame(_FrameType.HEADERS, _END_HEADERS, stream, block)
    return head + _encode_frame(_FrameType.DATA, _END_STREAM, stream, body)
