"""Verdicts of a running analyzer against the truth of the simulated nodes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from bench.programs import Client
from gpusteward.core.node.gpus import Gpu
from gpusteward.simulate.ground_truth import Truth
from gpusteward.simulate.nodes import SimulatedNode

WORKED, RESTED, EDGE = "worked", "did nothing", "worked at an edge of the window only"
YOUNG, ENDED = "pod younger than the window", "pod has ended"
PAGE_ROWS = 1000
ATTEMPTS = 3

Key = tuple[str, str, str, str]  # namespace, pod, container, gpu id


@dataclass(frozen=True, slots=True)
class Comparison:
    """One result: how often each verdict was given for each truth."""

    at: float
    counts: dict[str, dict[str, int]]  # truth -> activity -> allocations
    missing: int  # allocations that the result lacks, of pods older than the window

    @property
    def wrongly_idle(self) -> int:
        return self.counts.get(WORKED, {}).get("idle", 0)

    def count(self, activity: str) -> int:
        return sum(row.get(activity, 0) for row in self.counts.values())


def list_truths(nodes: Sequence[SimulatedNode], at: float) -> dict[Key, Truth]:
    """The truth of every allocation, under the names that the API has."""
    truths = {}
    for node in nodes:
        for each in node.ownerships(at):
            container = each.allocation.container
            truths[container.namespace, container.pod, container.name, name_gpu(each.gpu)] = each.truth(at)
    return truths


def name_gpu(gpu: Gpu) -> str:
    return f"{gpu.mig.parent_uuid}/{gpu.mig.gpu_instance_id}" if gpu.mig else gpu.uuid


def name_truth(truth: Truth | None, at: float, *, window: float, edge: float) -> str:
    """What an allocation did in the window. Work within one scrape interval of its ends cannot be seen for certain."""
    if truth is None:
        return ENDED
    if truth.started_at > at - window:
        return YOUNG
    if not truth.worked(at - window, at):
        return RESTED
    return WORKED if truth.worked(at - window + edge, at - edge) else EDGE


def compare(
    rows: Sequence[Mapping[str, Any]], truths: Mapping[Key, Truth], *, at: float, window: float, edge: float
) -> Comparison:
    seen: set[Key] = set()
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        key = (row["namespace"], row["pod"], row["container"], row["gpu"])
        seen.add(key)
        name = name_truth(truths.get(key), at, window=window, edge=edge)
        counts.setdefault(name, Counter())[row["activity"]] += 1
    missing = sum(key not in seen and truth.started_at <= at - window for key, truth in truths.items())
    return Comparison(at, {name: dict(count) for name, count in sorted(counts.items())}, missing)


def compare_result(client: Client, nodes: Sequence[SimulatedNode], *, edge: float) -> Comparison:
    """The last result of a running analyzer."""
    pages = _read_result(client)
    stamp = pages[0]["result"]
    at, window = datetime.fromisoformat(stamp["at"]).timestamp(), float(stamp["window_seconds"])
    rows = [row for page in pages for row in page["items"]]
    return compare(rows, list_truths(nodes, at), at=at, window=window, edge=edge)


def _read_result(client: Client) -> list[dict[str, Any]]:
    """All pages of one result; a new one that is published between two pages ends the list with 410."""
    for _ in range(ATTEMPTS - 1):
        try:
            return list(_read_pages(client))
        except RuntimeError:
            continue
    return list(_read_pages(client))


def _read_pages(client: Client) -> Iterator[dict[str, Any]]:
    cursor: str | None = ""
    while cursor is not None:
        given = {"limit": PAGE_ROWS} | ({"cursor": cursor} if cursor else {})
        page = client.get_json(f"/api/v1/allocations?{urlencode(given)}")
        yield page
        cursor = page["next"]
