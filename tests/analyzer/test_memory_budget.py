"""`gpusteward serve` under hostile engines and targets: it stays within the memory limit of the manifest, still
answers, and still judges what honest ones report."""

import gzip
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler
from itertools import count
from pathlib import Path

import pytest

from gpusteward.simulate.fleets import default_node
from tests.analyzer.engines import running_prometheus
from tests.analyzer.scraped_history import scrape_history, scrape_times
from tests.analyzer.serve_process import RunningServe, running_serve
from tests.analyzer.sources.faulty_engine import faulty, no_fault
from tests.analyzer.sources.scrape.page_server import PageServer, serving_pages
from tests.analyzer.sources.scrape.test_page_parser import page

pytestmark = pytest.mark.slow

ENVIRONMENT = {"PATH": os.environ["PATH"]}
LIMIT_BYTES = 512 << 20
BUDGET = f"--set=memory.budget_bytes={LIMIT_BYTES}"
MAX_ATTACK_SECONDS = 120.0
SENT_BYTES = 100 << 20
"""Of one hostile answer, if it is read to its end."""

Parts = Iterator[bytes]
NUMBERS = count()


def repeat_rows(row: bytes, *, rows: int, start: bytes = b"") -> Parts:
    """As many rows as are read, all different if the row has question marks."""
    block = b"".join(row.replace(b"?", b"?%x" % number) for number in range(rows))
    yield start
    while True:
        yield block.replace(b"?", b"%x-" % next(NUMBERS))


def vector(row: bytes) -> Parts:
    """An instant vector with as many rows as are read."""
    return repeat_rows(row, rows=2000, start=b'{"status":"success","data":{"resultType":"vector","result":[')


SHORT_ROW = b'{"metric":{"UUID":"?","pod":"p?"},"value":[1,"1"]},'
LONG_TEXT = b"?" + b"x" * 3000
LONG_ROW = b'{"metric":{"UUID":"%s","pod":"\xf0\x9f\x92\xa5%s","namespace":"%s"},"value":[1,"1"]},' % (3 * (LONG_TEXT,))
SAME_ROW = b'{"metric":{"UUID":"a"},"value":[1,"1"]},'


def endlessly(start: bytes, part: bytes) -> Parts:
    yield start
    while True:
        yield part * (1 + 200_000 // len(part))


ENGINE_ATTACKS: tuple[Callable[[], Parts], ...] = (
    lambda: vector(SHORT_ROW),
    lambda: vector(LONG_ROW),
    lambda: vector(SAME_ROW),
    lambda: endlessly(b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"', b"x"),
    lambda: endlessly(b'{"status":"success","data":', b"["),
    lambda: endlessly(b'{"status":"success","data":', b'{"a":'),
    lambda: endlessly(b'{"status":"success","warnings":[', b'"ab",'),
    lambda: endlessly(b'{"status":"success","data":[', b'"ab",'),
    lambda: endlessly(b'{"status":"success","data":{"a":[', b"[],"),
    lambda: endlessly(b"", b'{"metric":{"a":"b"},"values":[1],"timestamps":[1]}\n'),
)


def send_attack(handler: BaseHTTPRequestHandler, parts: Parts, *, is_packed: bool) -> None:
    """Chunked, until the client has enough."""
    handler.send_response_only(200)
    handler.send_header("Transfer-Encoding", "chunked")
    if is_packed:
        handler.send_header("Content-Encoding", "gzip")
        parts = iter([pack_zeros()])
    handler.end_headers()
    sent = 0
    for part in filter(None, parts):  # an empty chunk is the end
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        sent += len(part)
        if sent > SENT_BYTES:
            break
    handler.wfile.write(b"0\r\n\r\n")


@cache
def pack_zeros() -> bytes:
    return gzip.compress(b"0" * SENT_BYTES, compresslevel=1)


def read_peak_bytes(server: RunningServe) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def endure(server: RunningServe, is_enough: Callable[[], bool]) -> None:
    """Let the attack go on: the process answers all the time and stays within its limit."""
    latest = time.monotonic() + MAX_ATTACK_SECONDS
    while not is_enough():
        assert server.get("/health").status == 200
        assert read_peak_bytes(server) < LIMIT_BYTES
        assert time.monotonic() < latest, "the attack did not take place"
        time.sleep(0.2)


def list_activities(server: RunningServe) -> dict[str, str]:
    rows = server.get("/api/v1/allocations?limit=1000").json["items"]
    return {row["pod"]: row["activity"] for row in rows}


def test_a_hostile_engine_stays_within_the_memory_limit_and_costs_only_its_own_part(tmp_path: Path):
    times = scrape_times(1500, at=time.time() + 300)
    samples = scrape_history([default_node(1, name="showcase")], times)
    attacks, sent = count(), list[int]()
    (tmp_path / "prometheus").mkdir()

    def attack(handler: BaseHTTPRequestHandler, _: str) -> bool:
        number = next(attacks)
        sent.append(number)
        chosen = ENGINE_ATTACKS[number % len(ENGINE_ATTACKS)]
        send_attack(handler, chosen(), is_packed=number % 11 == 10)
        return True

    with running_prometheus(tmp_path / "prometheus", samples) as engine, faulty(engine.url) as hostile:
        urls = f"--set=prometheus.url={engine.url} {hostile.url}"
        flags = (BUDGET, urls, "--set=scheduler.interval=1")
        with running_serve(tmp_path, *flags, env=ENVIRONMENT) as server:
            server.wait_for(lambda it: it.get("/health").json["last_analysis"] is not None)
            before = list_activities(server)
            hostile.fault = attack
            endure(server, lambda: len(sent) > 4 * len(ENGINE_ATTACKS))
            assert list_activities(server) == before  # from the honest engine
            hostile.fault = no_fault
            server.wait_for(lambda it: it.get("/api/v1/sources").json["failures"] == {}, seconds=60)
        assert set(before.values()) >= {"active", "idle"}


MANY_SERIES = b'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="?",Hostname="x"} 1\n'
LONG_LABEL = "💥?".encode() + b"y" * 4000
LONG_LABELS = b'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="%s",pod="%s",namespace="%s",Hostname="x"} 1\n' % (3 * (LONG_LABEL,))
NAME = b"?" + b"n" * 240 + "💥".encode()  # kept as it is; the last character makes it four times as large in memory
NAMES = b'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="%s",pod="%s",namespace="%s",container="%s"} 1\n' % (4 * (NAME,))
PAGE_ATTACKS: tuple[Callable[[], Parts], ...] = (
    lambda: repeat_rows(MANY_SERIES, rows=1000),
    lambda: repeat_rows(LONG_LABELS, rows=100),
    lambda: repeat_rows(NAMES, rows=100),
    lambda: endlessly(b"", b"\n"),
    lambda: endlessly(b"", b"ab\n"),
    lambda: endlessly(b"", b"x"),
    lambda: endlessly(b"", b'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 1\n'),
)
HOSTILE_TARGETS = 24


def limited(parts: Parts, size: int) -> Parts:
    """A page that is accepted: complete lines within the limit of a page."""
    for part in parts:
        size -= len(part)
        if size < 0:
            return
        yield part


@contextmanager
def serving_hostile_pages() -> Iterator[tuple[PageServer, list[str]]]:
    """Targets whose pages are attacks, two thirds of them small enough to be accepted."""
    seen: list[str] = []
    attacks = count()

    def respond(handler: BaseHTTPRequestHandler) -> bool:
        if not handler.path.startswith("/hostile"):
            return False
        number = next(attacks)
        seen.append(handler.path)
        if number % 3 == 0:  # fills the store
            send_attack(handler, limited(repeat_rows(NAMES, rows=100), 4 << 20), is_packed=False)
            return True
        parts = PAGE_ATTACKS[number % len(PAGE_ATTACKS)]()
        is_small = number // len(PAGE_ATTACKS) % 2 == 0
        send_attack(handler, limited(parts, 8 << 20) if is_small else parts, is_packed=number % 13 == 12)
        return True

    with serving_pages({"/good": page("honest", core="70").encode()}) as server:
        server.respond = respond
        yield server, seen


def test_hostile_targets_stay_within_the_memory_limit_and_cost_only_their_own_part(tmp_path: Path):
    with serving_hostile_pages() as (pages, seen):
        hostile = ", ".join(f'"{pages.address(f"/hostile/{number}")}"' for number in range(HOSTILE_TARGETS))
        flags = (
            BUDGET,
            f'--set=scrape.targets=[{hostile}, "{pages.address("/good")}"]',
            *("--set=scrape.interval=2", "--set=scrape.timeout=5", "--set=scheduler.interval=2"),
            "--set=prometheus.time_window_min=1",  # texts need more than values
        )
        with running_serve(tmp_path, *flags, env=ENVIRONMENT) as server:
            endure(server, lambda: len(seen) > 3 * HOSTILE_TARGETS)
            server.wait_for(lambda it: list_activities(it).get("honest") == "active", seconds=120)
            assert read_peak_bytes(server) < LIMIT_BYTES
