"""A world for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.analyzer.reclaim.world import World
from tests.kubernetes.cluster import Cluster


@pytest.fixture
def world(kubernetes: Cluster, tmp_path: Path) -> Iterator[World]:
    world = World(kubernetes, tmp_path)
    yield world
    world.close()


@pytest.fixture
def node(kubernetes: Cluster) -> str:
    """For 64 GPUs."""
    return kubernetes.add_node(gpus=64)
