"""A world for each test, or a ledger alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from gpusteward.analyzer.ledger.database.db_engine import open_engine
from gpusteward.analyzer.ledger.database.schema_version import create_tables
from tests.analyzer.reclaim.world import World
from tests.kubernetes.cluster import Cluster


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_engine(f"sqlite:///{tmp_path / 'ledger.db'}")
    create_tables(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def world(kubernetes: Cluster, tmp_path: Path) -> Iterator[World]:
    world = World(kubernetes, tmp_path)
    yield world
    world.close()


@pytest.fixture
def node(kubernetes: Cluster) -> str:
    """For 64 GPUs."""
    return kubernetes.add_node(gpus=64)
