"""/metrics: gpu-oour's names, one status at a time, in both formats, compressed or not; checked with other parsers."""

import gzip
import subprocess
import zlib
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gpusteward.analyzer.metrics.analyzer_metrics import ANALYZER_METRICS
from gpusteward.core.usages import Measure
from gpusteward.http_server.gzip_body import Body
from tests.analyzer.api.sample_results import small_result
from tests.analyzer.api.server import Api, make_result, running_api
from tests.analyzer.usage_tables import AT, GIB, allocation, large_table, resting, signal, table_of, working

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with running_api(small_result()) as running:
        yield running


def test_the_official_parsers_read_the_same_samples_from_both_formats(api: Api):
    text = api.get("/metrics")
    openmetrics = api.get("/metrics", Accept=OPENMETRICS)
    assert text.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    ours = {s for family in parse_text(text.body.decode()) for s in map(str, family.samples)}
    theirs = {s for family in parse_openmetrics(openmetrics.body.decode()) for s in map(str, family.samples)}
    assert ours == theirs


@pytest.mark.parametrize("accept", ["text/plain", OPENMETRICS, OPENMETRICS.replace("1.0.0", "0.0.1")])
def test_the_compressed_page_is_one_gzip_member_with_the_same_text(api: Api, accept: str):
    packed = api.get("/metrics", Accept=accept, Accept_Encoding="gzip")
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    assert unpacker.decompress(packed.body) == api.get("/metrics", Accept=accept).body
    assert (unpacker.eof, unpacker.unused_data) == (True, b"")


def test_every_metric_is_in_the_table_of_metrics(api: Api):
    names = {line.split()[2] for line in api.get("/metrics").body.decode().splitlines() if line.startswith("# TYPE")}
    assert names <= {metric.name for metric in ANALYZER_METRICS}


def test_promtool_accepts_our_own_names(api: Api, component: Callable[[str], str]):
    page = api.get("/metrics").body
    done = subprocess.run(
        [component("promtool"), "check", "metrics"], input=page, capture_output=True, timeout=60, check=False
    )
    warnings = [line for line in (done.stdout + done.stderr).decode().splitlines() if "gpusteward_" in line]
    assert warnings == []
    assert b"error while linting" not in done.stderr


def test_a_previous_status_disappears():
    one = allocation()
    with running_api(make_result(table_of(working(), allocations=[one]))) as api:
        before = api.get("/metrics").body.decode()
        api.publish(make_result(table_of(resting(), allocations=[one], at=AT + 300), number=2))
        after = api.get("/metrics").body.decode()
    (then,) = [line for line in before.splitlines() if line.startswith("gpu_utilization_score{")]
    (now,) = [line for line in after.splitlines() if line.startswith("gpu_utilization_score{")]
    assert ('status="normal"' in then, 'status="idle"' in now) == (True, True)


def test_what_could_not_be_measured_has_no_sample(api: Api):
    page = api.get("/metrics").body.decode()
    assert 'pod="unread"' not in page
    assert not [line for line in page.splitlines() if line.startswith("gpu_power_usage_watts") and "GPU-d/7" in line]
    assert 'gpusteward_analyzer_unknown_allocations{reason="no-data"} 1' in page
    assert "\ngpusteward_analyzer_unknown_allocations " not in page  # every sample has a reason


def test_failures_are_on_the_page_although_no_cycle_was_published():
    with running_api(None) as api:
        api.dependencies.cycles.stats.failed = 2
        page = api.get("/metrics").body.decode()
    assert "gpu_analysis_errors_total 2" in page
    assert "gpu_utilization_score" not in page


def test_odd_names_are_escaped_and_missing_ones_left_out():
    known = signal(Measure.MEMORY_TOTAL, 80 * GIB)
    odd, missing = allocation(0, model='say "hi"\\'), allocation(1, model="")
    with running_api(make_result(table_of(working() | known, working() | known, allocations=[odd, missing]))) as api:
        families = {family.name: family for family in parse_text(api.get("/metrics").body.decode())}
    for name in ("gpu_memory_total_mb", "gpu_utilization_score"):
        assert [sample.labels.get("model") for sample in families[name].samples] == ['say "hi"\\', None]


def test_a_page_too_large_to_keep_uncompressed_is_sent_uncompressed_on_request():
    with running_api(make_result(large_table(40_000))) as api:
        packed = api.get("/metrics", Accept_Encoding="gzip").body
        plain = api.get("/metrics").body
    assert len(plain) > 32 * 1024 * 1024
    assert gzip.decompress(packed) == plain


def test_few_rows_with_much_text_are_not_kept_uncompressed():
    assert Body([b"x" * (20 << 20)]).is_kept_plain
    assert not Body([b"x" * (20 << 20)] * 2).is_kept_plain


@given(st.lists(st.binary(max_size=200), max_size=6), st.binary(max_size=200), st.booleans())
def test_a_body_is_the_same_compressed_and_uncompressed(pieces: list[bytes], tail: bytes, keep_plain: bool):
    body, whole = Body(pieces, keep_plain=keep_plain), b"".join(pieces)
    assert gzip.decompress(b"".join(body.gzip(tail))) == whole + tail == b"".join(body.pieces(tail))
    assert (body.size, body.is_kept_plain) == (len(whole), keep_plain)
