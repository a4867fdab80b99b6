"""Nodes that offer GPUs, from a real API server with the rights of the analyzer's manifest."""

import time

import pytest

from gpusteward.analyzer.sources.offered_gpus import LIST_SECONDS, OfferedGpus, OfferedNode
from tests.analyzer.sources.owners.test_real_owners import read_rules
from tests.kubernetes.cluster import Cluster, wait_for

pytestmark = pytest.mark.slow


def test_nodes_with_gpus_are_listed_with_their_number_and_since_when_they_are_ready(kubernetes: Cluster):
    account = kubernetes.add_account(kubernetes.add_namespace(), read_rules())
    begin = time.time()
    gpu, cpu, lost = kubernetes.add_node(gpus=8), kubernetes.add_node(), kubernetes.add_node(gpus=4, is_managed=False)
    now = [0.0]
    offered = OfferedGpus(kubernetes.connect(account), clock=lambda: now[0])

    def find(name: str) -> OfferedNode | None:
        now[0] += LIST_SECONDS
        return next((one for one in offered.list_nodes() if one.name == name), None)

    wait_for(lambda: (one := find(gpu)) is not None and one.ready_at is not None)
    found = find(gpu)
    assert found is not None
    assert found.gpus == 8
    assert found.ready_at is not None
    assert begin - 2 <= found.created_at <= found.ready_at + 1 <= time.time() + 2
    assert find(cpu) is None
    never_ready = find(lost)
    assert never_ready is not None
    assert never_ready.ready_at is None
