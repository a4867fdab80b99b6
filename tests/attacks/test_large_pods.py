"""Pods of a tenant that are as large as etcd allows: lists of the API server are read, and little of them is kept."""

import json
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from gpusteward.analyzer.reclaim.cluster import Cluster
from gpusteward.analyzer.sources.owners.owner_resolver import PodName
from gpusteward.analyzer.sources.owners.pod_uids import PodUids
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.targets import PodTargets
from gpusteward.kubernetes.api import PAGE_BYTES
from gpusteward.kubernetes.writes import ApiWriter

PODS = 1000


def make_pod(number: int, filler: str) -> dict[str, object]:
    return {
        "metadata": {
            "name": f"pod-{number}",
            "namespace": "team",
            "uid": f"uid-{number}",
            "annotations": {"gpusteward.io/keep": "true", "a": filler[:100_000]},
            "managedFields": [{"manager": filler[:10_000]}],
        },
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "env": [{"name": "A", "value": filler[:50_000]}],
                    "resources": {"limits": {"nvidia.com/gpu": "1"}},
                }
            ]
        },
        "status": {"phase": "Pending"},
    }


class LargePods(BaseHTTPRequestHandler):
    """Pages of a list of pods of 160 kB: 500 of them are more than a client reads of any response."""

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        start, size = int(query.get("continue", ["0"])[0]), int(query["limit"][0])
        end = min(start + size, PODS)
        pods = [make_pod(number, f"{number:08d}" * 12_500) for number in range(start, end)]
        body = json.dumps({"metadata": {"continue": str(end) if end < PODS else ""}, "items": pods}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            return  # the client has seen that it is too large

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def serving_large_pods() -> Iterator[str]:
    """The address of their API server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), LargePods) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def api() -> Iterator[ApiWriter]:
    with serving_large_pods() as url:
        yield ApiWriter(url)


def test_uids_are_found_among_large_pods(api: ApiWriter):
    uids = PodUids(api, clock=time.monotonic)
    uids.refresh([PodName("team", f"pod-{number}") for number in (0, PODS - 1)])
    assert [uids.find("team", f"pod-{number}") for number in (0, PODS - 1)] == ["uid-0", f"uid-{PODS - 1}"]


def test_targets_are_found_among_large_pods(api: ApiWriter):
    settings = ScrapeSettings(selector="app=agent", namespaces=["*"])
    assert PodTargets(api, settings, own_namespace="gpusteward").read() == ()  # none of them runs


def test_a_list_of_large_pods_is_read_in_smaller_pages_and_little_is_kept(api: ApiWriter):
    tracemalloc.start()
    try:
        pods = Cluster(api).list_pending()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [pod.name for pod in pods] == [f"pod-{number}" for number in range(PODS)]
    assert pods[0].annotations["gpusteward.io/keep"] == "true"
    assert pods[0].spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert kept < PODS * 6000 + 2 * PAGE_BYTES  # of 160 MB
