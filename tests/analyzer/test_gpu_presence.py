"""A site without any GPU is degraded, unless the API server shows that no node offers one."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from gpusteward.analyzer.gpu_presence import GpuPresence
from gpusteward.analyzer.ledger.last_gpus import LastGpus
from gpusteward.analyzer.ledger_access import LedgerAccess
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.analyzer.sources.offered_gpus import PAGE_SIZE, OfferedGpus, offers_gpus
from gpusteward.analyzer.sources.usage.findings import NO_GPU_SERIES
from gpusteward.analyzer.tables import NodeModel, SiteFinding, UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.kubernetes.api import ApiServer
from gpusteward.messages.unknown_reasons import NO_CURRENT_SAMPLE
from tests.analyzer.ledger.cycles import RESTING, START, cycles, record_all, sqlite_url
from tests.analyzer.usage_tables import AT, allocation, resting, table_of

DAY = 86_400.0
NONE = UsageTable(AT, 600)
FREE = UsageTable(AT, 600, fleet={NodeModel("n1", "H100"): 8})
WHY = SiteFinding("info", NO_GPU_SERIES, Message("only rules are left.", "只剩记录规则。"))


@dataclass
class Nodes:
    """A node that offers GPUs, none, or an error."""

    found: str | SourceError

    def find_node(self) -> str:
        if isinstance(self.found, SourceError):
            raise self.found
        return self.found


def look(table: UsageTable, **options: Any) -> tuple[str, str, str]:
    """Level, code and text of the only finding."""
    (found,) = GpuPresence(**options).check(table).findings
    return found.level, found.code, found.message.en


def later(seconds: float) -> UsageTable:
    return replace(NONE, at=AT + seconds, findings=(WHY,))


def test_gpus_that_were_never_found_are_degraded_with_the_reason():
    level, code, text = look(later(0))
    assert (level, code) == ("degraded", "gpus-never-found")
    assert "only rules are left." in text


def test_gpus_that_vanished_within_a_day_are_degraded():
    presence = GpuPresence()
    assert presence.check(FREE).findings == ()
    (found,) = presence.check(later(DAY)).findings
    assert (found.level, found.code) == ("degraded", "gpus-vanished")
    assert "8 were known until 2026-09-21 14:13" in found.message.en
    (old,) = presence.check(later(DAY + 1)).findings
    assert (old.level, old.code) == ("warning", "gpus-gone"), "never silent"


def test_allocations_that_report_nothing_are_no_gpus():
    table = table_of(resting(), resting(), unknown={0: NO_CURRENT_SAMPLE, 1: NO_CURRENT_SAMPLE})
    assert look(table)[1] == "gpus-never-found"
    assert GpuPresence().check(replace(table, unknown={0: NO_CURRENT_SAMPLE})).findings == ()


@pytest.mark.parametrize("last", [None, LastGpus(AT - 60, 8), LastGpus(AT - 60, 8, frozenset({"east"}))])
def test_a_cluster_without_gpu_nodes_is_scaled_to_zero_and_not_degraded(last: LastGpus | None):
    level, code, _ = look(later(0), read_last=lambda: last, offered=Nodes(""))
    assert (level, code) == ("info", "scaled-to-zero")


@pytest.mark.parametrize(
    ("found", "text"), [("gpu-7", "such as gpu-7"), (SourceError(Message("forbidden", "禁止")), "forbidden")]
)
def test_nodes_that_offer_gpus_or_cannot_be_listed_leave_it_degraded(found: str | SourceError, text: str):
    level, _, said = look(later(0), offered=Nodes(found))
    assert level == "degraded"
    assert text in said


def test_the_nodes_of_one_cluster_say_nothing_about_the_gpus_of_another():
    both = LastGpus(AT - 60, 16, frozenset({"east", "west"}))
    assert look(later(0), read_last=lambda: both, offered=Nodes(""), own_cluster="east")[0] == "degraded"
    other = LastGpus(AT - 60, 16, frozenset({"west"}))
    assert look(later(0), read_last=lambda: other, offered=Nodes(""), own_cluster="east")[0] == "degraded"


def test_after_a_restart_the_ledger_knows_the_gpus(tmp_path: Path):
    settings = LedgerSettings(url=sqlite_url(tmp_path))
    fleet = {("n1", "H100"): 8, ("n2", "A100", "east"): 4}
    new = LedgerAccess(settings, PriceSettings)
    assert new.read_last_gpus() is None, "a new file"
    new.close()
    record_all(settings.url, cycles([(allocation(), RESTING)], range(0, 30, 5), fleet=fleet))
    access = LedgerAccess(settings, PriceSettings)
    found = access.read_last_gpus()
    access.close()
    assert found is not None
    assert (found.gpus, found.clusters) == (12, {"east"})
    assert START < found.at <= START + 3600
    presence = GpuPresence(lambda: found)
    assert presence.check(replace(NONE, at=found.at + 60)).findings[0].code == "gpus-vanished"


def test_held_gpus_are_known_where_none_are_counted(tmp_path: Path):
    settings = LedgerSettings(url=sqlite_url(tmp_path))
    record_all(settings.url, cycles([(allocation(0), RESTING), (allocation(1), RESTING)], range(0, 30, 5)))
    access = LedgerAccess(settings, PriceSettings)
    found = access.read_last_gpus()
    access.close()
    assert found is not None
    assert found.gpus == 2


def test_a_ledger_that_cannot_be_read_is_asked_again():
    failures: list[Exception | None] = [SourceError(Message("hung", "无响应")), None]

    def read() -> LastGpus | None:
        failure = failures.pop(0)
        if failure:
            raise failure
        return LastGpus(AT - 60, 8)

    presence = GpuPresence(read)
    assert presence.check(NONE).findings[0].code == "gpus-never-found"
    assert presence.check(NONE).findings[0].code == "gpus-vanished"


@pytest.mark.parametrize(
    ("capacity", "labels", "offers"),
    [
        ({"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "8"}, {}, True),
        ({"nvidia.com/mig-1g.10gb": "7"}, {}, True),
        ({"volcano.sh/vgpu-number": "10"}, {}, True),
        ({"nvidia.com/gpu": "0", "cpu": "8"}, {}, False),
        ({"cpu": "8", "hugepages-2Mi": "0"}, {"kubernetes.io/arch": "amd64"}, False),
        ({"cpu": "8"}, {"nvidia.com/gpu.present": "true"}, True),
        ({"cpu": "8"}, {"nvidia.com/gpu.present": "false"}, False),
        ({"cpu": "8"}, {"cloud.google.com/gke-accelerator": "nvidia-l4"}, True),
    ],
)
def test_nodes_offer_gpus_by_resources_or_labels(capacity: dict[str, str], labels: dict[str, str], offers: bool):
    assert offers_gpus(capacity, labels) is offers


@contextmanager
def serving(answer: Callable[[str], tuple[int, Mapping[str, Any]]]) -> Iterator[tuple[ApiServer, list[str]]]:
    """An API server with these answers, and the paths that were requested."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            status, value = answer(self.path)
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield ApiServer(f"http://127.0.0.1:{server.server_address[1]}"), paths
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def list_of(items: Sequence[Mapping[str, Any]], more: str = "") -> tuple[int, Mapping[str, Any]]:
    return 200, {"items": items, "metadata": {"continue": more} if more else {}}


def node(name: str, **capacity: str) -> Mapping[str, Any]:
    return {"metadata": {"name": name}, "status": {"capacity": {"cpu": "8", **capacity}}}


def test_nodes_are_read_page_by_page_until_one_offers_gpus():
    def answer(path: str) -> tuple[int, Mapping[str, Any]]:
        last = list_of([node("b", **{"nvidia.com/gpu": "8"})], more="never read")
        return last if "continue=next" in path else list_of([node("a")], more="next")

    with serving(answer) as (api, paths):
        offered = OfferedGpus(api)
        assert [offered.find_node(), offered.find_node()] == ["b", "b"]
    assert paths == [f"/api/v1/nodes?limit={PAGE_SIZE}", f"/api/v1/nodes?limit={PAGE_SIZE}&continue=next"]


@pytest.mark.parametrize(("driver", "found"), [("gpu.nvidia.com", "c"), ("nic.example.com", "")])
def test_devices_of_dynamic_resource_allocation_are_offered_too(driver: str, found: str):
    def answer(path: str) -> tuple[int, Mapping[str, Any]]:
        if "/v1/resourceslices" in path:
            return 404, {"message": "not found"}
        return list_of([{"spec": {"driver": driver, "nodeName": "c"}}] if "slices" in path else [node("a")])

    with serving(answer) as (api, _):
        assert OfferedGpus(api).find_node() == found


@pytest.mark.parametrize("denied", ["nodes", "resourceslices"])
def test_never_scaled_to_zero_without_the_rights_to_see_it(denied: str):
    def answer(path: str) -> tuple[int, Mapping[str, Any]]:
        return (403, {"message": "forbidden"}) if denied in path else list_of([])

    with serving(answer) as (api, _):
        assert look(later(0), offered=OfferedGpus(api))[0] == "degraded"
