"""A webhook receiver on loopback: real HTTP, with faults as attributes.

with Receiver() as receiver: receiver.url; receiver.accepted
receiver.fault = "hang"   # accepts the call and does not respond
receiver.feishu_secret = "x"   # a Feishu bot with signature check: 200 and an error code for unsigned messages
receiver.restart()             # on the same port; `calls` and `accepted` are kept
"""

import base64
import hashlib
import hmac
import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.waiting import wait_until


@dataclass(frozen=True)
class Call:
    """One received call."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_port = True
    request_queue_size = 64

    def handle_error(self, *_: object) -> None:
        """Clients that disconnect are expected here."""


class Receiver:
    """Accepts everything, unless a fault is set."""

    def __init__(self) -> None:
        self._reserved = _reserve_port()
        self.port: int = self._reserved.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.fault = ""  # hang, drop, redirect, drip, or a status such as 500
        self.response_body = b'{"code":0,"msg":"success"}'
        self.retry_after = ""
        self.feishu_secret = ""
        self.calls: list[Call] = []  # all received calls; `accepted` are those that got 2xx
        self.accepted: list[Call] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._http: _Server | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "Receiver":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __del__(self) -> None:
        self._reserved.close()

    def start(self) -> None:
        self._closing.clear()
        self._http = _Server(("127.0.0.1", self.port), self._handler())
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.005,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        if self._http is None or self._thread is None:
            return
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        self._http = None

    def restart(self) -> None:
        self.stop()
        self.start()

    @property
    def texts(self) -> list[str]:
        """Texts that Feishu users would read."""
        return [call.json["content"]["text"] for call in self.accepted]

    def wait_for(self, condition: Callable[["Receiver"], bool], seconds: float = 60) -> None:
        wait_until(lambda: condition(self), seconds, lambda: f"{len(self.accepted)} accepted of {len(self.calls)}")

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", 0))
                body = self.rfile.read(length)
                if len(body) < length:
                    return  # the client was killed while sending
                call = Call(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
                with fake._lock:
                    fake.calls.append(call)
                fake._respond(self, call)

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def _respond(self, to: BaseHTTPRequestHandler, call: Call) -> None:
        fault = self.fault
        if fault == "hang":
            self._closing.wait(30)
        elif fault == "drip":
            while not self._closing.wait(0.02):
                to.wfile.write(b"H")
                to.wfile.flush()
        elif fault == "drop":
            to.connection.close()
        elif fault == "redirect":
            self._send(to, 307, location=f"{self.url}/elsewhere")
        elif fault:
            self._send(to, int(fault))
        elif self.feishu_secret and not _is_signed(call.json, self.feishu_secret):
            self._send(
                to, 200, body=b'{"code":19021,"data":{},"msg":"sign match fail or timestamp is not within one hour"}'
            )
        else:
            with self._lock:
                self.accepted.append(call)
            self._send(to, 200)

    def _send(self, to: BaseHTTPRequestHandler, status: int, *, body: bytes | None = None, **headers: str) -> None:
        body = self.response_body if body is None else body
        to.send_response(status)
        to.send_header("content-length", str(len(body)))
        if self.retry_after:
            to.send_header("retry-after", self.retry_after)
        for name, value in headers.items():
            to.send_header(name, value)
        to.end_headers()
        to.wfile.write(body)


def _reserve_port() -> socket.socket:
    """A bound socket that never listens: keeps the port while the server is stopped, and connections are refused."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind(("127.0.0.1", 0))
    return reserved


def _is_signed(message: Any, secret: str) -> bool:
    """As Feishu documents it."""
    timestamp, sign = message.get("timestamp"), message.get("sign")
    if not isinstance(timestamp, str) or not isinstance(sign, str) or abs(time.time() - int(timestamp)) > 3600:
        return False
    code = hmac.new("\n".join((timestamp, secret)).encode(), digestmod=hashlib.sha256).digest()
    return hmac.compare_digest(base64.b64decode(sign, validate=True), code)
