"""The page at a scrape: fresh, packed once, and visibly old when nothing moves any more."""

import gzip
import zlib

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gpusteward.agent.metrics_page import MetricsPage
from gpusteward.core import metrics
from gpusteward.core.exposition import Family

INFO = Family(metrics.GPU_INFO, [('{gpu="0"}', 1)])
POWER = Family(metrics.DEVICE_SIGNALS["power_watts"], [('{gpu="0"}', 250.0)])


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def published(clock: Clock) -> MetricsPage:
    pages = MetricsPage(node="node-a", interval_seconds=5, clock=clock)
    pages.publish([INFO, POWER], taken_at=clock.now)
    return pages


def values(page: bytes) -> dict[str, float]:
    return {sample.name: sample.value for family in parse_text(page.decode()) for sample in family.samples}


def test_the_age_grows_although_nothing_else_moves():
    clock = Clock()
    pages = published(clock)
    assert values(pages.render(openmetrics=False, gzip=False))["gpusteward_snapshot_age_seconds"] == 0
    clock.now += 7.5
    assert values(pages.render(openmetrics=False, gzip=False))["gpusteward_snapshot_age_seconds"] == 7.5


def test_a_page_older_than_three_intervals_keeps_only_what_is_still_true():
    clock = Clock()
    pages = published(clock)
    clock.now += 15
    assert "gpusteward_gpu_power_watts" in values(pages.render(openmetrics=False, gzip=False))
    clock.now += 0.1
    assert pages.is_stale
    for packed in (False, True):
        body = pages.render(openmetrics=False, gzip=packed)
        assert values(gzip.decompress(body) if packed else body).keys() == {
            "gpusteward_gpu_info",
            "gpusteward_snapshot_age_seconds",
        }


def test_a_packed_page_is_the_plain_one_and_is_packed_once():
    pages = published(Clock())
    for openmetrics in (False, True):
        plain = pages.render(openmetrics=openmetrics, gzip=False)
        assert gzip.decompress(pages.render(openmetrics=openmetrics, gzip=True)) == plain
    body = pages._published.packed[False, False]
    pages.render(openmetrics=False, gzip=True)
    assert pages._published.packed[False, False] is body


def test_a_packed_page_is_one_gzip_member_because_curl_and_others_read_no_more_than_one():
    pages = published(Clock())
    for _ in range(2):
        reader = zlib.decompressobj(16 + zlib.MAX_WBITS)
        assert reader.decompress(pages.render(openmetrics=True, gzip=True)).endswith(b"# EOF\n")
        assert reader.eof
        assert reader.unused_data == b""


def test_openmetrics_ends_as_it_must():
    page = published(Clock()).render(openmetrics=True, gzip=False).decode()
    assert {family.name for family in parse_openmetrics(page)} >= {
        "gpusteward_gpu_info",
        "gpusteward_snapshot_age_seconds",
    }


def test_before_the_first_cycle_the_page_is_empty_and_stale():
    pages = MetricsPage(node="node-a", interval_seconds=5, clock=Clock())
    assert pages.is_stale
    assert pages.age_seconds is None
    assert pages.render(openmetrics=False, gzip=False) == b""
    assert gzip.decompress(pages.render(openmetrics=True, gzip=True)) == b"# EOF\n"


def test_a_page_is_packed_with_the_cycle_while_a_scraper_is_expected():
    clock = Clock()
    pages = published(clock)
    assert pages._published.packed == {}
    pages.render(openmetrics=True, gzip=True)
    clock.now += 30
    pages.publish([INFO, POWER], taken_at=clock.now)
    assert pages._published.packed.keys() == {(True, False)}
    clock.now += 500
    pages.publish([INFO, POWER], taken_at=clock.now)
    assert pages._published.packed == {}
