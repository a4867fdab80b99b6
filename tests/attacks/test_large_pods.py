"""Pods of a tenant that are as large as etcd allows: lists of the API server are read, and little of them is kept."""

import json
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from gpusteward.analyzer.reclaim.cluster import Cluster, PodId, Reading
from gpusteward.analyzer.reclaim.kinds.objects import KubeObject
from gpusteward.analyzer.reclaim.listed_pods import LONGEST_LABELS, ListedPod, keep_used
from gpusteward.analyzer.sources.owners.owner_resolver import PodName as NamespacedPod
from gpusteward.analyzer.sources.owners.pods_by_name import PodUids
from gpusteward.analyzer.sources.scrape.settings import ScrapeSettings
from gpusteward.analyzer.sources.scrape.targets import PodTargets
from gpusteward.kubernetes.api import PAGE_BYTES
from gpusteward.kubernetes.writes import ApiWriter

PODS = 1000


def make_pod(number: str) -> dict[str, object]:
    filler, names = f"{number:08}" * 12_500, [f"{number}-{each}" for each in range(200)]
    return {
        "metadata": {
            "name": f"pod-{number}",
            "namespace": "team",
            "uid": f"uid-{number}",
            "labels": {"app": "a", **{f"a/{each}": "x" * 50 for each in names}},
            "annotations": {"gpusteward.io/keep": "true", "a": filler[:50_000], **{f"a/{each}": "x" for each in names}},
            "managedFields": [{"manager": filler[:10_000]}],
        },
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": "node-a", **dict.fromkeys(names, "x")},
            "tolerations": [{"key": each, "operator": "Exists"} for each in names],
            "volumes": [{"name": each, "emptyDir": {}} for each in names],
            "containers": [
                *({"name": each, "image": "x", "resources": {"limits": {each: "1"}}} for each in names),
                {
                    "name": "main",
                    "env": [{"name": "A", "value": filler[:50_000]}],
                    "resources": {"limits": {"nvidia.com/gpu": "1"}},
                },
            ],
        },
        "status": {"phase": "Pending", "conditions": [{"type": each, "status": "True"} for each in names]},
    }


LARGE_POD = json.dumps(make_pod("NUMBER"))


class LargePods(BaseHTTPRequestHandler):
    """Pages of a list of pods of 160 kB: 500 of them are more than a client reads of any response."""

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        start, size = int(query.get("continue", ["0"])[0]), int(query["limit"][0])
        end = min(start + size, PODS)
        pods = ",".join(LARGE_POD.replace("NUMBER", str(number)) for number in range(start, end))
        body = f'{{"metadata": {{"continue": "{end if end < PODS else ""}"}}, "items": [{pods}]}}'.encode()
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
    uids.refresh([NamespacedPod("team", f"pod-{number}") for number in (0, PODS - 1)])
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
    assert pods[0].labels["app"] == "a"
    assert pods[0].spec["containers"] == [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    assert kept < PODS * (LONGEST_LABELS + 20_000) + PAGE_BYTES  # of 160 MB


def test_what_reclaim_reads_of_a_listed_pod_is_kept():
    """In the form of the API server, as of an object that is read by itself."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "1", "controller": True}
    claims = [{"name": "gpu", "resourceClaimName": "gpu-1"}]
    required = {"nodeSelectorTerms": [{"matchExpressions": []}]}
    pod = {
        "metadata": {
            "name": "p",
            "namespace": "n",
            "uid": "2",
            "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "deletionTimestamp": "2026-01-02T00:00:00Z",
            "labels": {"kueue.x-k8s.io/queue-name": "q"},
            "annotations": {
                "controller.kubernetes.io/pod-deletion-cost": "5",
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
                "gpusteward.io/idle-window": "3h",
            },
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": "node-a",
            "nodeSelector": {"kubernetes.io/hostname": "node-a"},
            "priorityClassName": "high",
            "resourceClaims": claims,
            "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "2"}}}],
            "initContainers": [
                {"name": "side", "restartPolicy": "Always", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
            ],
        },
        "status": {
            "phase": "Running",
            "startTime": "2026-01-01T00:00:01Z",
            "conditions": [{"type": "Ready", "status": "True"}],
            "resourceClaimStatuses": claims,
        },
    }
    assert keep_used(msgspec.convert(pod, ListedPod)) == pod
    terms = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
    for spec, is_asked in ((terms, True), ({}, False)):
        kept = keep_used(msgspec.json.decode(json.dumps({**pod, "spec": spec}), type=ListedPod))
        affinity = kept["spec"].get("affinity", {}).get("nodeAffinity", {})
        assert bool(affinity.get("requiredDuringSchedulingIgnoredDuringExecution")) == is_asked


def test_the_controller_of_a_listed_pod_is_kept_however_many_owners_it_has():
    owners = [{"kind": "Job", "name": f"j-{number}", "uid": str(number)} for number in range(2000)]
    owners[-1]["controller"] = True
    pod = keep_used(msgspec.convert({"metadata": {"ownerReferences": owners}}, ListedPod))
    assert pod["metadata"]["ownerReferences"][0]["name"] == "j-1999"
    assert len(pod["metadata"]["ownerReferences"]) < 100


class LargeOwners(ApiWriter):
    """Pods without GPUs, each with a Job of 100 kB that belongs to one RayCluster."""

    PODS = 300

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1")

    def read_json(self, path: str, kind: Any, *, limit_bytes: int | None = None, accept: str = "") -> Any:
        kept = {"namespace": "team"}
        if "/jobs/" in path:
            name = path.rpartition("/")[2]
            above = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "ray", "uid": "ray"}
            metadata = {**kept, "name": name, "uid": name, "ownerReferences": [{**above, "controller": True}]}
            found: object = {"metadata": metadata, "spec": {"template": name * 20_000}}
        elif "/pods?" in path:
            owner = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}
            names = [f"job-{number}" for number in range(self.PODS)]
            pods = [
                {**kept, "name": each, "uid": f"pod-{each}", "ownerReferences": [{**owner, "name": each, "uid": each}]}
                for each in names
            ]
            found = {"items": [{"metadata": each, "status": {"phase": "Running"}} for each in pods]}
        else:
            found = {"metadata": {**kept, "name": "ray", "uid": "ray"}}
        return msgspec.json.decode(msgspec.json.encode(found), type=kind)


def test_of_the_owners_of_pods_without_gpus_little_is_kept():
    owner = KubeObject("ray.io/v1", "RayCluster", {"metadata": {"namespace": "team", "name": "ray", "uid": "ray"}})
    reading = Reading(Cluster(LargeOwners()))
    tracemalloc.start()
    try:
        found = reading.list_others_below([owner])
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) == LargeOwners.PODS
    assert PodId("job-0", "pod-job-0") in found
    assert kept < LargeOwners.PODS * 10_000  # of 100 kB each
