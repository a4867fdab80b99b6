"""The /metrics page: fresh, compressed once per cycle, and visibly old when collection hangs."""

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
    page = MetricsPage(node="node-a", interval_seconds=5, clock=clock)
    page.publish([INFO, POWER], taken_at=clock.now)
    return page


def values(body: bytes) -> dict[str, float]:
    return {sample.name: sample.value for family in parse_text(body.decode()) for sample in family.samples}


def test_the_age_grows_between_cycles():
    clock = Clock()
    page = published(clock)
    assert values(page.render(openmetrics=False, gzip=False))["gpusteward_snapshot_age_seconds"] == 0
    clock.now += 7.5
    assert values(page.render(openmetrics=False, gzip=False))["gpusteward_snapshot_age_seconds"] == 7.5


def test_a_page_older_than_three_intervals_keeps_only_families_that_stay_true():
    clock = Clock()
    page = published(clock)
    clock.now += 15
    assert "gpusteward_gpu_power_watts" in values(page.render(openmetrics=False, gzip=False))
    clock.now += 0.1
    assert page.is_stale
    for compressed in (False, True):
        body = page.render(openmetrics=False, gzip=compressed)
        assert values(gzip.decompress(body) if compressed else body).keys() == {
            "gpusteward_gpu_info",
            "gpusteward_snapshot_age_seconds",
        }


def test_a_compressed_page_equals_the_plain_one_and_is_compressed_once():
    page = published(Clock())
    for openmetrics in (False, True):
        plain = page.render(openmetrics=openmetrics, gzip=False)
        assert gzip.decompress(page.render(openmetrics=openmetrics, gzip=True)) == plain
    assert page.compressions == 2
    page.render(openmetrics=False, gzip=True)
    assert page.compressions == 2


def test_a_compressed_page_is_a_single_gzip_member():
    page = published(Clock())
    for _ in range(2):
        reader = zlib.decompressobj(16 + zlib.MAX_WBITS)
        assert reader.decompress(page.render(openmetrics=True, gzip=True)).endswith(b"# EOF\n")
        assert reader.eof
        assert reader.unused_data == b""


def test_an_openmetrics_page_can_be_parsed():
    page = published(Clock()).render(openmetrics=True, gzip=False).decode()
    assert {family.name for family in parse_openmetrics(page)} >= {
        "gpusteward_gpu_info",
        "gpusteward_snapshot_age_seconds",
    }


def test_before_the_first_cycle_the_page_is_empty_and_stale():
    page = MetricsPage(node="node-a", interval_seconds=5, clock=Clock())
    assert page.is_stale
    assert page.age_seconds is None
    assert page.render(openmetrics=False, gzip=False) == b""
    assert gzip.decompress(page.render(openmetrics=True, gzip=True)) == b"# EOF\n"


def test_a_recently_scraped_format_is_compressed_with_the_cycle():
    clock = Clock()
    page = published(clock)
    assert page.compressions == 0
    page.render(openmetrics=True, gzip=True)
    clock.now += 30
    page.publish([INFO, POWER], taken_at=clock.now)
    assert page.compressions == 2
    page.render(openmetrics=True, gzip=True)
    assert page.compressions == 2
    clock.now += 500
    page.publish([INFO, POWER], taken_at=clock.now)
    assert page.compressions == 2
