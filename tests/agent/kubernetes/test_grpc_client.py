"""The gRPC client: against grpcio's server, and against frames that a server may or must not send."""

import contextlib
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import hpack
import pytest
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusteward.agent.kubernetes.grpc_client import (
    ClosedError,
    GrpcConnection,
    GrpcProtocolError,
    GrpcStatusError,
    MessageTooLargeError,
)

METHOD = "/v1.PodResourcesLister/List"
LIMIT_BYTES = 2**20
DOCUMENTED = (OSError, GrpcProtocolError, MessageTooLargeError, GrpcStatusError)


def call(connection: GrpcConnection, message: bytes = b"", *, seconds: float = 10) -> bytes:
    return connection.call(METHOD, message, deadline=time.monotonic() + seconds)


class Echo(grpc.GenericRpcHandler):
    """Responds with the request, repeated; a request of one word fails with that status."""

    def __init__(self) -> None:
        self.repeat = 1

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(self._respond)  # without codecs: bytes

    def _respond(self, request, context):
        if request.isupper():
            context.abort(grpc.StatusCode[request.decode()], "没有 100 % of it\n")
        return request * self.repeat


@contextlib.contextmanager
def grpcio_server(path, echo):
    server = grpc.server(ThreadPoolExecutor(1), handlers=[echo])
    server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield server
    finally:
        server.stop(None).wait(10)


@contextlib.contextmanager
def connected_to(path, limit_bytes=LIMIT_BYTES):
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(path))
    with contextlib.closing(GrpcConnection(client, limit_bytes=limit_bytes)) as connection:
        yield connection


def test_messages_and_errors_of_grpcio_arrive(tmp_path):
    path, echo = tmp_path / "socket", Echo()
    with grpcio_server(path, echo), connected_to(path) as connection:
        assert [call(connection, word) for word in (b"", b"one", b"two")] == [b"", b"one", b"two"]
        for status in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNIMPLEMENTED):
            with pytest.raises(GrpcStatusError, match=f"{status.name} 没有 100 % of it") as error:
                call(connection, status.name.encode())
            assert error.value.status == status.value[0]
        assert call(connection, b"again") == b"again"


def test_responses_larger_than_the_default_window_arrive(tmp_path):
    path, echo = tmp_path / "socket", Echo()
    echo.repeat = 2**19
    with grpcio_server(path, echo), connected_to(path) as connection:
        assert [len(call(connection, b"x")) for _ in range(3)] == [2**19] * 3


def test_a_response_over_the_limit_is_refused_at_its_beginning(tmp_path):
    path, echo = tmp_path / "socket", Echo()
    echo.repeat = 2**22
    with (
        grpcio_server(path, echo),
        connected_to(path) as connection,
        pytest.raises(MessageTooLargeError, match="4194304 bytes"),
    ):
        call(connection, b"x")


class Peer:
    """The other end of a connection, which sends prepared frames and keeps what it received."""

    def __init__(self) -> None:
        self.encoder = hpack.Encoder()
        ours, self.socket = socket.socketpair()
        self.connection = GrpcConnection(ours, limit_bytes=LIMIT_BYTES)

    def headers(self, *headers, stream=1, flags=("END_HEADERS",)):
        return HeadersFrame(stream, self.encoder.encode(headers), flags=flags)

    def trailers(self, status="0", *more, stream=1):
        return self.headers(("grpc-status", status), *more, stream=stream, flags=("END_HEADERS", "END_STREAM"))

    def response(self, message: bytes, stream=1) -> list[Frame]:
        head = self.headers((":status", "200"), ("content-type", "application/grpc"), stream=stream)
        return [head, data(message, stream=stream), self.trailers(stream=stream)]

    def send(self, *frames: Frame | bytes) -> None:
        self.socket.sendall(b"".join(each if isinstance(each, bytes) else each.serialize() for each in frames))

    def received(self) -> list[Frame]:
        """The frames after the preface; the socket must have them already."""
        content, found = self.socket.recv(2**16), []
        content = content.removeprefix(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        while content:
            frame, size = Frame.parse_frame_header(memoryview(content)[:9])
            frame.parse_body(memoryview(content)[9 : 9 + size])
            found.append(frame)
            content = content[9 + size :]
        return found


def data(message: bytes, *, stream=1, compressed=False, **options) -> DataFrame:
    return DataFrame(stream, bytes([compressed]) + len(message).to_bytes(4) + message, **options)


@pytest.fixture
def peer():
    peer = Peer()
    yield peer
    peer.socket.close()
    peer.connection.close()


def test_the_request_is_what_grpc_prescribes(peer):
    peer.send(*peer.response(b"hello"))
    assert call(peer.connection, b"ask") == b"hello"
    settings_frame, window, head, body = peer.received()
    assert settings_frame.settings[SettingsFrame.ENABLE_PUSH] == 0
    assert window.window_increment > 2**30
    assert dict(hpack.Decoder().decode(head.data)) == {
        ":method": "POST",
        ":scheme": "http",
        ":path": METHOD,
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
        "user-agent": "gpusteward-agent",
    }
    assert (head.flags, body.flags, body.data) == ({"END_HEADERS"}, {"END_STREAM"}, b"\0\0\0\0\3ask")


def test_the_window_is_given_back_with_the_next_request(peer):
    peer.send(*peer.response(bytes(1000)))
    call(peer.connection)
    peer.received()
    peer.send(*peer.response(b"", stream=3))
    call(peer.connection)
    window, head, _ = peer.received()
    assert (window.window_increment, head.stream_id) == (1005, 3)


def test_settings_and_pings_are_acknowledged(peer):
    peer.send(SettingsFrame(0, {SettingsFrame.MAX_FRAME_SIZE: 2**15}), PingFrame(0, b"12345678"))
    peer.send(SettingsFrame(0, flags=["ACK"]), PingFrame(0, b"abcdefgh", flags=["ACK"]), *peer.response(b"x"))
    assert call(peer.connection) == b"x"
    *_, settings_ack, ping_ack = peer.received()
    assert (settings_ack.flags, ping_ack.flags, ping_ack.opaque_data) == ({"ACK"}, {"ACK"}, b"12345678")


def test_padding_priority_and_continuation_are_understood(peer):
    block = peer.encoder.encode([(":status", "200"), ("x", "y")])
    head = HeadersFrame(1, block[:2], flags=["PADDED", "PRIORITY"], pad_length=7, depends_on=3)
    rest = [ContinuationFrame(1, block[2:3]), ContinuationFrame(1, block[3:], flags=["END_HEADERS"])]
    peer.send(head, *rest, data(b"padded", flags=["PADDED"], pad_length=200), peer.trailers())
    assert call(peer.connection) == b"padded"


def test_headers_of_an_earlier_stream_keep_the_compression_state(peer):
    """The later response names headers by their index in the dynamic table, to which this block adds."""
    peer.send(peer.headers((":status", "200"), ("x-first", "1"), stream=7), *peer.response(b"a"))
    assert call(peer.connection) == b"a"
    peer.send(*peer.response(b"b", stream=3))
    assert call(peer.connection) == b"b"


def test_a_message_in_many_frames_is_joined(peer):
    head, body, trailers = peer.response(bytes(range(256)))
    peer.send(head, *(DataFrame(1, bytes([byte])) for byte in body.data), trailers)
    assert call(peer.connection) == bytes(range(256))


def test_a_response_during_the_shutdown_of_the_server_is_the_last(peer):
    peer.send(GoAwayFrame(0, last_stream_id=2**31 - 1), *peer.response(b"last"))
    assert call(peer.connection) == b"last"
    assert not peer.connection.is_usable


@pytest.mark.parametrize(
    ("frames", "error", "text"),
    [
        ([GoAwayFrame(0, last_stream_id=0, error_code=2)], ClosedError, "shuts down with code 2"),
        ([RstStreamFrame(1, error_code=7)], ClosedError, "reset with code 7"),
        ([PushPromiseFrame(1, promised_stream_id=2)], GrpcProtocolError, "unexpected frame"),
        ([ContinuationFrame(1, b"")], GrpcProtocolError, "unexpected frame"),
        ([HeadersFrame(1, b"\xff" * 9, flags=["END_HEADERS"])], GrpcProtocolError, "invalid headers"),
        ([HeadersFrame(1, b""), PingFrame(0, bytes(8))], GrpcProtocolError, "does not end"),
        ([HeadersFrame(1, b""), *[ContinuationFrame(1, bytes(2**14))] * 5], GrpcProtocolError, "does not end"),
        ([b"\0\0\2\0\x08\0\0\0\1\5x"], GrpcProtocolError, "padding only"),
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], GrpcProtocolError, "HTTP/1.1"),
    ],
)
def test_a_broken_exchange_fails(peer, frames, error, text):
    peer.send(*frames)
    with pytest.raises(error, match=text):
        call(peer.connection)


@pytest.mark.parametrize(
    ("after_headers", "error", "text"),
    [
        (lambda peer: [data(b"x"), data(b"y")], GrpcProtocolError, "more than one message"),
        (lambda peer: [data(b"x", compressed=True), peer.trailers()], GrpcProtocolError, "compressed"),
        (lambda peer: [DataFrame(1, b"\0\0\0\0\7x"), peer.trailers()], GrpcProtocolError, "incomplete"),
        (lambda peer: [peer.trailers()], GrpcProtocolError, "incomplete"),
        (lambda peer: [data(b"x", flags=["END_STREAM"])], ClosedError, "without a status"),
        (lambda peer: [peer.trailers("nothing")], ClosedError, "without a status"),
        (lambda peer: [peer.trailers("5", ("grpc-message", "%41%zz"))], GrpcStatusError, "NOT_FOUND A%zz"),
        (lambda peer: [peer.trailers("99")], GrpcStatusError, "status 99"),
        (lambda peer: [DataFrame(1, b"\0\xff\xff\xff\xff")], MessageTooLargeError, "4294967295 bytes"),
    ],
)
def test_an_invalid_response_fails(peer, after_headers, error, text):
    peer.send(peer.headers((":status", "200")), *after_headers(peer))
    with pytest.raises(error, match=text):
        call(peer.connection)


def test_an_http_error_of_another_server_fails(peer):
    peer.send(peer.headers((":status", "404"), flags=("END_HEADERS", "END_STREAM")))
    with pytest.raises(GrpcProtocolError, match="HTTP status b'404'"):
        call(peer.connection)


def test_a_slow_server_has_the_time_of_the_whole_call(peer):
    """A timeout that began anew with each byte would never end this call."""
    stop = threading.Event()

    def trickle() -> None:
        with contextlib.suppress(OSError):
            while not stop.wait(0.01):
                peer.send(PingFrame(0, bytes(8), flags=["ACK"]))

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        with pytest.raises(TimeoutError):
            call(peer.connection, seconds=0.2)
    finally:
        stop.set()
        thread.join()


@settings(max_examples=500, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 150), st.binary(max_size=2)), max_size=4), st.integers(0, 150))
def test_any_bytes_end_in_a_message_or_a_documented_error(changes, end):
    peer = Peer()
    sent = b"".join(frame.serialize() for frame in [SettingsFrame(0), PingFrame(0, bytes(8)), *peer.response(b"hello")])
    for position, replacement in changes:
        sent = sent[:position] + replacement + sent[position + 1 :]
    peer.send(sent[:end] if end < 20 else sent)
    peer.socket.shutdown(socket.SHUT_WR)
    with contextlib.closing(peer.socket), contextlib.closing(peer.connection), contextlib.suppress(*DOCUMENTED):
        assert isinstance(call(peer.connection, seconds=1), bytes)
