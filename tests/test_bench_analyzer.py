"""The pure parts of the analyzer's bench: blocks, recorded requests, limits, the report."""

import urllib.request
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import quote_plus, unquote_plus

from bench.analyzer import Results, check_limits, render_report
from bench.fleet_data import (
    BLOCK_SECONDS,
    STEP,
    cut_blocks,
    labels_of,
    write_samples,
)
from bench.measure import About, Memory
from bench.served import REQUESTED, Served
from bench.ways import CycleTime, RecordedRequest, Ways, add_unread_signals, record_requests


class QuietFiles(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Keep the test output clean."""


def ways(gpus: int, *, minutes: float = 10, cycle: float = 1.1, curl: float = 1.0, oour: float = 200.0) -> Ways:
    time = CycleTime(cycle, cycle * 0.9, cycle * 0.02, cycle * 0.08, cycle * 0.2)
    return Ways(
        gpus=gpus,
        window_minutes=minutes,
        queries=["count(A)"],
        allocations=gpus,
        unknown=0,
        sampled_gpus=100,
        first_cycle=time,
        busy_cores=[0.0] * 3,
        curl=[curl] * 3,
        curl_all_signals=[curl * 1.25] * 3,
        cycles=[time] * 3,
        oour=[oour] * 3,
        oour_by_uuid=[oour] * 3,
        oour_kept=[oour] * 3,
        alone_seconds=[0.5],
    )


def served(gpus: int, *, peak_kib: int = 150_000, milliseconds: float = 5.0) -> Served:
    return Served(
        gpus=gpus,
        cycles=1,
        allocations=gpus,
        coverage=1.0,
        unknown={},
        start_seconds=2.0,
        cycle_seconds=[1.0],
        after_cycles=Memory(peak_kib, peak_kib, peak_kib),
        after_requests=Memory(peak_kib, peak_kib, peak_kib),
        milliseconds=dict.fromkeys(REQUESTED, [milliseconds] * 3),
        sizes=dict.fromkeys(REQUESTED, 1000),
    )


def results(measured: list[Ways], serving: list[Served]) -> Results:
    about = About("make bench", "2026-11-15", "a processor", 2, "Linux", "CPython", "glibc", {})
    return Results(about, measured, serving)


def failed_checks(found: Results) -> list[str]:
    return [check.promise for check in check_limits(found) if not check.holds]


def test_all_checks_pass_where_everything_is_within_its_limit():
    fleets = [ways(1_000), ways(10_000), ways(10_000, minutes=120, cycle=3.3, curl=3), ways(50_000)]
    found = results(fleets, [served(10_000), served(50_000)])
    assert failed_checks(found) == []
    assert len(check_limits(found)) == 4 + 6 + 1 + 1 + 1 + 3


def test_a_slow_cycle_fails_against_curl_and_gpu_oour():
    failed = failed_checks(results([ways(50_000, cycle=3.0)], []))
    assert failed == [
        "a cycle over 50,000 GPUs, 10 min, against curl",
        "faster than gpu-oour's queries at 50,000 GPUs",
        "faster than gpu-oour's queries at 50,000 GPUs, if the peak of the clock and free memory were read too",
        'faster than gpu-oour\'s queries at 50,000 GPUs, without its `pod!=""`',
    ]


def test_growth_faster_than_the_fleet_fails():
    fleets = [ways(10_000), ways(50_000, cycle=6.0, curl=6.0, oour=600)]
    name = "a cycle grows from 10,000 to 50,000 GPUs with their number to the power of"
    assert failed_checks(results(fleets, [])) == [name]
    (check,) = [check for check in check_limits(results(fleets, [])) if check.promise == name]
    assert check.measured == "1.05"
    assert "5 x the GPUs of 10,000 took 5.45 x the time, of curl 6.00 x" in check.method


def test_growth_in_proportion_to_the_fleet_passes():
    fleets = [ways(1_000), ways(10_000, cycle=11, curl=10, oour=2000), ways(50_000, cycle=54, curl=50, oour=9000)]
    assert failed_checks(results(fleets, [])) == []


def test_memory_is_checked_at_the_largest_fleet_only():
    assert failed_checks(results([], [served(10_000, peak_kib=300_000)])) == []
    assert failed_checks(results([], [served(50_000, peak_kib=196_000)])) == [
        "RSS of `gpusteward serve` at 50,000 GPUs"
    ]


def test_a_failed_check_is_reported_as_missed():
    assert "MISSED" in render_report(results([ways(50_000, cycle=3.0)], [served(50_000)]))


def test_moments_are_cut_where_prometheus_cuts_its_blocks():
    moments = range(BLOCK_SECONDS - STEP, BLOCK_SECONDS + STEP, STEP)
    assert list(cut_blocks(moments)) == [[BLOCK_SECONDS - STEP], [BLOCK_SECONDS]]


def test_every_series_has_a_sample_at_every_moment(tmp_path: Path):
    write_samples(tmp_path / "samples.txt", range(3), moments=[0, STEP])
    lines = (tmp_path / "samples.txt").read_text().splitlines()
    assert len(lines) == (3 * 6 + 1) * 2 + 1, "three GPUs of one target"
    assert lines[-1] == "# EOF"
    assert sum(line.startswith(f"DCGM_FI_DEV_FB_USED{{{labels_of(2)}}} ") for line in lines) == 2


def test_unread_signals_are_queried_like_the_others():
    power = [quote_plus(f"max by (UUID) ({fold}_over_time(DCGM_FI_DEV_POWER_USAGE[1m]))") for fold in ("avg", "max")]
    recorded = [RecordedRequest("POST", "/api/v1/query", f"query={text}&time=1") for text in power]
    more = [unquote_plus(one.body) for one in add_unread_signals(recorded)[2:]]
    assert more == [
        "query=max by (UUID) (max_over_time(DCGM_FI_DEV_SM_CLOCK[1m]))&time=1",
        "query=max by (UUID) (avg_over_time(DCGM_FI_DEV_FB_FREE[1m]))&time=1",
        "query=max by (UUID) (max_over_time(DCGM_FI_DEV_FB_FREE[1m]))&time=1",
    ]


def test_the_recorder_forwards_what_it_records(tmp_path: Path):
    (tmp_path / "labels").write_text("a response")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietFiles, directory=tmp_path)) as engine:
        thread = Thread(target=engine.serve_forever, args=(0.01,))
        thread.start()
        with (
            record_requests(f"http://127.0.0.1:{engine.server_port}") as proxy,
            urllib.request.urlopen(f"{proxy.url}/labels?start=1", timeout=10) as response,
        ):
            assert response.read() == b"a response"
        engine.shutdown()
        thread.join()
    assert proxy.requests == [RecordedRequest("GET", "/labels?start=1", "")]
