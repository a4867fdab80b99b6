"""A server that is older, newer, or another program: a command ends with a line about it, never with a traceback."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gpusteward.cli.main import main

COMMANDS = (
    ["idle"],
    ["idle", "-o", "wide"],
    ["idle", "-o", "csv"],
    ["top", "--output", "table"],
    ["top", "--output", "wide", "--view", "gpus"],
    ["top", "--output", "json", "--view", "tenants"],
    ["explain", "vision/a"],
    ["explain", "a", "-o", "csv"],
    ["plan"],
    ["plan", "--guards"],
    ["replay"],
    ["replay", "-o", "html"],
    ["lend"],
    ["actions"],
    ["policies"],
    ["reclaim", "status"],
    ["snooze", "--list"],
    ["restore", "--all"],
    ["report"],
    ["ps", "--node", "n1"],
)
AGENT_COMMANDS = (
    ["ps"],
    ["ps", "--all"],
    ["top", "--output", "table"],
    ["top", "--output", "table", "--view", "workloads"],
)
ITEM = {"kind": "Job", "namespace": "vision", "name": "a"}
KEYS = (
    *("items", "result", "at", "total", "next", "workload", "allocations", "allocation", "evidence"),
    *("reasons", "opinion", "idle_since", "gpus", "idle_gpus", "unknown_gpus", "users", "models", "nodes"),
    *(
        "idle_cost_micros",
        "currency",
        "score",
        "resumption",
        "within_30_minutes",
        "probability",
        "age_seconds",
        "last_error",
        "window_seconds",
    ),
    *("holders", "counts", "mode", "answers", "changes", "due_at", "action", "policy", "compared"),
    *("frontier", "regretted", "since", "until", "spells", "regret_minutes", "minutes", "gpu_hours", "cost"),
    *("details", "switch", "policies", "match", "fields", "window", "updated_at", "waiting_gpus", "is_restorable"),
    *("id", "who", "processes", "untold", "pid", "memory_bytes", "sm_ratio", "groups", "amounts"),
    *("cycles", "clusters", "readings", "gpu", "signals", "mig", "taken_at", "failures", "container"),
    *("first_ms", "ended_ms", "allocated_gpu_ms", "idle_gpu_ms", "stale", "horizon", "is_valid", "error", "coverage"),
    *("courses"),
)
VALUES = (None, True, -1, float("nan"), 1e308, "x", "9999-12-31T23:59:59Z", [], [7, "x"], {})
"""What a field may be instead of what it should be."""


def list_answers() -> Iterator[object]:
    yield from ({}, [], None, "x", 7)
    for value in VALUES:
        row = {**dict.fromkeys(KEYS, value), **ITEM}
        nested = {**row, "workload": row, "result": row, "policy": row, "container": row, "gpu": row}
        named = ("items", "allocations", "policies", "regretted", "readings", "processes", "groups")
        lists = {key: [nested, row] for key in named}
        yield {**nested, "stale": True}
        yield {**nested, **lists}


@pytest.fixture
def answer() -> Iterator[list[bytes]]:
    """What the server says to every request; the second item is its address."""
    said = [b""]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(said[0])))
            self.end_headers()
            self.wfile.write(said[0])

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    said.append(f"http://127.0.0.1:{server.server_port}".encode())
    yield said
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("words", [*COMMANDS, *([*words, "--agent"] for words in AGENT_COMMANDS)], ids=" ".join)
def test_never_ends_with_a_traceback(words: list[str], answer: list[bytes], capsys: pytest.CaptureFixture[str]) -> None:
    url = answer[1].decode()
    arguments = [*words, url] if words[-1] == "--agent" else [*words, "--server", url]
    for each in list_answers():
        answer[0] = json.dumps(each).encode()
        try:
            code = main(arguments)
        except Exception as error:  # noqa: BLE001
            pytest.fail(f"{error!r} for {each}")
        assert code in (0, 1, 2), each
        assert "\x1b" not in capsys.readouterr().out
