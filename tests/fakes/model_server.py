"""Language models on the loopback: OpenAI's chat completions (also as Azure spells them) and Anthropic's messages.

    with FakeModel() as model:
        model.statuses = [500, 429]  # the first two requests fail with these, later ones succeed

Real HTTP and real wire formats, used through the real SDKs. Faults are attributes.
"""

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]

ANSWER: Json = {
    "status": "suspicious",
    "confidence": 0.9,
    "reason": "memory held, core at 0",
    "recommendation": "ask the owner",
    "adjusted_score": 12,
}
ENDLESS_CHUNKS = 200


class FakeModel:
    """Responds to every request with `answer`, unless a failure is configured."""

    def __init__(self) -> None:
        self.answer: Json | Callable[[Json], Json] = ANSWER
        self.statuses: list[int] = []  # errors for the next requests, one each
        self.always: int | None = None  # an error for every request
        self.retry_after: str | None = None
        self.body: bytes | None = None  # sent in place of an answer
        self.headers: dict[str, str] = {}  # sent along with it
        self.never_responds = False  # accepts the request and never responds
        self.is_endless = False  # responds with megabytes
        self.refuses_tools = False  # 400 to a request with tools, JSON text otherwise
        self.responds_with_text = False  # JSON text even when tools are offered
        self.requests: list[Json] = []
        self.paths: list[str] = []
        self.credentials: list[str] = []
        self._closed = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> "FakeModel":
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def system(self) -> str:
        """The instructions of the last request."""
        last = self.requests[-1]
        if "system" in last:
            return "\n".join(part["text"] for part in last["system"])
        return "\n".join(each["content"] for each in last["messages"] if each["role"] == "system")

    @property
    def user(self) -> str:
        """The user message of the last request."""
        content = self.requests[-1]["messages"][-1]["content"]
        return content if isinstance(content, str) else "".join(part["text"] for part in content)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # the body follows its header without a delay of 40 ms

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["content-length"])))
                fake.requests.append(request)
                fake.paths.append(self.path)
                key = self.headers.get("api-key") or self.headers.get("x-api-key") or self.headers["authorization"]
                fake.credentials.append(str(key).removeprefix("Bearer "))
                fake._respond(self, request)

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def _respond(self, to: BaseHTTPRequestHandler, request: Json) -> None:
        if self.never_responds:
            self._closed.wait(60)
            to.close_connection = True
        elif self.is_endless:
            self._flood(to)
        elif self.always or self.statuses:
            self._fail(to, self.always or self.statuses.pop(0))
        elif self.refuses_tools and "tools" in request:
            self._fail(to, 400)
        else:
            self._send(to, 200, self.body if self.body is not None else self._response_body(to.path, request))

    def _fail(self, to: BaseHTTPRequestHandler, status: int) -> None:
        error = {"error": {"type": "some_error", "message": f"no luck with {self.credentials[-1]}"}}
        self._send(to, status, json.dumps({"type": "error", **error}).encode())

    def _send(self, to: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
        to.send_response(status)
        to.send_header("content-type", "application/json")
        to.send_header("content-length", str(len(body)))
        if self.retry_after is not None:
            to.send_header("retry-after", self.retry_after)
        for name, value in self.headers.items():
            to.send_header(name, value)
        to.end_headers()
        to.wfile.write(body)

    def _flood(self, to: BaseHTTPRequestHandler) -> None:
        to.close_connection = True
        to.send_response(200)
        to.send_header("content-type", "application/json")
        to.end_headers()
        try:
            for _ in range(ENDLESS_CHUNKS):
                to.wfile.write(b" " * 65536)
        except OSError:  # the client has disconnected
            pass

    def _response_body(self, path: str, request: Json) -> bytes:
        answer = self.answer(request) if callable(self.answer) else self.answer
        as_text = self.responds_with_text or "tools" not in request
        respond = _anthropic_response if path.partition("?")[0].endswith("/messages") else _openai_response
        return json.dumps(respond(request, answer, as_text=as_text)).encode()


def _openai_response(request: Json, answer: Json, *, as_text: bool) -> Json:
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "final_result", "arguments": json.dumps(answer)},
    }
    message: Json = {"role": "assistant", "content": None, "tool_calls": [call]}
    if as_text:
        message = {"role": "assistant", "content": json.dumps(answer)}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": request["model"],
        "choices": [{"index": 0, "finish_reason": "stop" if as_text else "tool_calls", "message": message}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100},
    }


def _anthropic_response(request: Json, answer: Json, *, as_text: bool) -> Json:
    content: Json = {"type": "tool_use", "id": "toolu_1", "name": "final_result", "input": answer}
    if as_text:
        content = {"type": "text", "text": json.dumps(answer)}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": request["model"],
        "content": [content],
        "stop_reason": "end_turn" if as_text else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1000, "output_tokens": 100},
    }


def unreachable_url() -> str:
    """An address at which connections are refused."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"
