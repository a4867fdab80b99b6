"""The parts of the analyzer's bench that think: cutting blocks, hearing questions, judging the bars."""

import urllib.request
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import quote_plus, unquote_plus

from bench.fleet_bars import judge
from bench.fleet_data import BLOCK_SECONDS, STEP, cut_blocks, labels_of, write_samples
from bench.fleet_report import render_report
from bench.fleet_results import CycleTime, Results, Served, Ways
from bench.machines import About
from bench.readings import Memory
from bench.served import ASKED
from bench.three_ways import add_unjudged
from bench.wire_tap import Asked, tap_wire


class QuietFiles(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Not a word."""


def ways(gpus: int, *, minutes: float = 10, cycle: float = 1.1, curl: float = 1.0, seed: float = 200.0) -> Ways:
    time = CycleTime(cycle, cycle * 0.9, cycle * 0.02, cycle * 0.08, cycle * 0.2)
    return Ways(
        gpus=gpus,
        window_minutes=minutes,
        queries=["count(A)"],
        allocations=gpus,
        unknown=0,
        sampled_gpus=100,
        first_cycle=time,
        others=[0.0] * 3,
        curl=[curl] * 3,
        curl_of_all=[curl * 1.25] * 3,
        cycles=[time] * 3,
        seed=[seed] * 3,
        seed_by_uuid=[seed] * 3,
        seed_kept=[seed] * 3,
        alone=[0.5],
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
        milliseconds=dict.fromkeys(ASKED, [milliseconds] * 3),
        sizes=dict.fromkeys(ASKED, 1000),
    )


def results(measured: list[Ways], serving: list[Served]) -> Results:
    about = About("make bench", "2026-11-15", "a processor", 2, "Linux", "CPython", "glibc", {})
    return Results(about, measured, serving)


def missed(found: Results) -> list[str]:
    return [bar.promise for bar in judge(found) if not bar.holds]


def test_all_bars_hold_where_everything_is_within_its_limit():
    fleets = [ways(1_000), ways(10_000), ways(10_000, minutes=120, cycle=3.3, curl=3), ways(50_000)]
    found = results(fleets, [served(10_000), served(50_000)])
    assert missed(found) == []
    assert len(judge(found)) == 4 + 6 + 1 + 1 + 1 + 3


def test_a_slow_cycle_is_missed_against_curl_and_against_the_seed():
    promises = missed(results([ways(50_000, cycle=3.0)], []))
    assert promises == [
        "a cycle over 50,000 GPUs, 10 min, against curl",
        "faster than the seed's way at 50,000 GPUs",
        "faster than the seed's way at 50,000 GPUs, if the clock's peak and free memory were asked for too",
        'faster than the seed\'s way at 50,000 GPUs, if it left out its `pod!=""`',
    ]


def test_growth_beyond_the_fleets_own_is_missed():
    fleets = [ways(10_000), ways(50_000, cycle=6.0, curl=6.0, seed=600)]
    promise = "a cycle grows from 10,000 to 50,000 GPUs with their number to the power of"
    assert missed(results(fleets, [])) == [promise]
    (bar,) = [bar for bar in judge(results(fleets, [])) if bar.promise == promise]
    assert bar.measured == "1.05"
    assert "5 x the GPUs of 10,000 took 5.45 x the time, of curl 6.00 x" in bar.judged_by


def test_growth_in_step_with_the_fleet_holds():
    fleets = [ways(1_000), ways(10_000, cycle=11, curl=10, seed=2000), ways(50_000, cycle=54, curl=50, seed=9000)]
    assert missed(results(fleets, [])) == []


def test_memory_counts_at_the_largest_fleet_only():
    assert missed(results([], [served(10_000, peak_kib=300_000)])) == []
    assert missed(results([], [served(50_000, peak_kib=196_000)])) == ["RSS of `gpusteward serve` at 50,000 GPUs"]


def test_a_missed_bar_is_written_as_missed():
    assert "MISSED" in render_report(results([ways(50_000, cycle=3.0)], [served(50_000)]))


def test_moments_are_cut_where_prometheus_cuts_its_blocks():
    moments = range(BLOCK_SECONDS - STEP, BLOCK_SECONDS + STEP, STEP)
    assert list(cut_blocks(moments)) == [[BLOCK_SECONDS - STEP], [BLOCK_SECONDS]]


def test_every_series_has_a_sample_at_every_moment(tmp_path: Path):
    write_samples(tmp_path / "samples.txt", 3, moments=[0, STEP])
    lines = (tmp_path / "samples.txt").read_text().splitlines()
    assert len(lines) == 3 * 6 * 2 + 1
    assert lines[-1] == "# EOF"
    assert sum(line.startswith(f"DCGM_FI_DEV_FB_USED{{{labels_of(2)}}} ") for line in lines) == 2


def test_what_nobody_judges_is_asked_for_like_the_rest():
    power = [quote_plus(f"max by (UUID) ({fold}_over_time(DCGM_FI_DEV_POWER_USAGE[1m]))") for fold in ("avg", "max")]
    asked = [Asked("POST", "/api/v1/query", f"query={text}&time=1") for text in power]
    more = [unquote_plus(one.body) for one in add_unjudged(asked)[2:]]
    assert more == [
        "query=max by (UUID) (max_over_time(DCGM_FI_DEV_SM_CLOCK[1m]))&time=1",
        "query=max by (UUID) (avg_over_time(DCGM_FI_DEV_FB_FREE[1m]))&time=1",
        "query=max by (UUID) (max_over_time(DCGM_FI_DEV_FB_FREE[1m]))&time=1",
    ]


def test_the_tap_passes_on_what_it_hears(tmp_path: Path):
    (tmp_path / "labels").write_text("an answer")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietFiles, directory=tmp_path)) as engine:
        thread = Thread(target=engine.serve_forever, args=(0.01,))
        thread.start()
        with (
            tap_wire(f"http://127.0.0.1:{engine.server_port}") as tap,
            urllib.request.urlopen(f"{tap.url}/labels?start=1", timeout=10) as answer,
        ):
            assert answer.read() == b"an answer"
        engine.shutdown()
        thread.join()
    assert tap.heard == [Asked("GET", "/labels?start=1", "")]
