"""A receiver of webhooks on the loopback: true HTTP, with misfortunes as attributes.

with Receiver() as receiver: receiver.url; receiver.accepted
receiver.misfortune = "hang"   # takes the call and does not answer
receiver.feishu_secret = "x"   # a Feishu bot that checks signatures: 200 and a code for what is not signed
receiver.restart()             # on the same port, with the same memory
"""

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.agent.test_agent_process import free_port


@dataclass(frozen=True)
class Call:
    """One call that was answered with 2xx."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def handle_error(self, *_: object) -> None:
        """A caller that hung up is what these tests are about."""


class Receiver:
    """Accepts everything, unless a misfortune is set."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.misfortune = ""  # hang, drop, redirect, drip, or a status such as 500
        self.answer = b'{"code":0,"msg":"success"}'
        self.retry_after = ""
        self.feishu_secret = ""
        self.calls: list[Call] = []  # every call that came, whatever became of it
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
        """What Feishu's users would read."""
        return [call.json["content"]["text"] for call in self.accepted]

    def wait_for(self, condition: Callable[["Receiver"], bool], seconds: float = 20) -> None:
        wait_until(lambda: condition(self), seconds, lambda: f"{len(self.accepted)} accepted of {len(self.calls)}")

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                call = Call(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
                with fake._lock:
                    fake.calls.append(call)
                fake._respond(self, call)

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def _respond(self, to: BaseHTTPRequestHandler, call: Call) -> None:
        misfortune = self.misfortune
        if misfortune == "hang":
            self._closing.wait(30)
        elif misfortune == "drip":
            while not self._closing.wait(0.02):
                to.wfile.write(b"H")
                to.wfile.flush()
        elif misfortune == "drop":
            to.connection.close()
        elif misfortune == "redirect":
            self._send(to, 307, location=f"{self.url}/elsewhere")
        elif misfortune:
            self._send(to, int(misfortune))
        elif self.feishu_secret and not _is_signed(call.json, self.feishu_secret):
            self._send(
                to, 200, body=b'{"code":19021,"data":{},"msg":"sign match fail or timestamp is not within one hour"}'
            )
        else:
            with self._lock:
                self.accepted.append(call)
            self._send(to, 200)

    def _send(self, to: BaseHTTPRequestHandler, status: int, *, body: bytes | None = None, **headers: str) -> None:
        body = self.answer if body is None else body
        to.send_response(status)
        to.send_header("content-length", str(len(body)))
        if self.retry_after:
            to.send_header("retry-after", self.retry_after)
        for name, value in headers.items():
            to.send_header(name, value)
        to.end_headers()
        to.wfile.write(body)


def _is_signed(message: Any, secret: str) -> bool:
    """As Feishu's pages describe it."""
    timestamp, sign = message.get("timestamp"), message.get("sign")
    if not isinstance(timestamp, str) or not isinstance(sign, str) or abs(time.time() - int(timestamp)) > 3600:
        return False
    code = hmac.new("\n".join((timestamp, secret)).encode(), digestmod=hashlib.sha256).digest()
    return hmac.compare_digest(base64.b64decode(sign, validate=True), code)


def wait_until(condition: Callable[[], bool], seconds: float = 20, about: Callable[[], object] = str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, about()
        time.sleep(0.005)
