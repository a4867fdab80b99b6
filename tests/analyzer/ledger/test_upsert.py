"""Rows are given by column name: a missing or an unknown column is an error, their order does not matter."""

from pathlib import Path

import pytest

from gpusteward.analyzer.ledger.database.db_engine import open_engine, with_write_lock
from gpusteward.analyzer.ledger.database.schema import METADATA, fleet_hourly
from gpusteward.analyzer.ledger.database.upsert import FLEET_RULES, upsert
from tests.analyzer.ledger.cycles import read_table

ROW = {"hour_ms": 0, "cluster": "", "node": "node-0", "model": "H100", "gpu_ms": 8, "known_ms": 1, "held_ms": 2}


def write(url: str, *rows: dict[str, object]) -> list[dict[str, object]]:
    engine = open_engine(url)
    try:
        METADATA.create_all(with_write_lock(engine))
        with with_write_lock(engine).begin() as connection:
            for row in rows:
                upsert(connection, fleet_hourly, {name: [value] for name, value in row.items()}, FLEET_RULES)
        return read_table(engine, fleet_hourly.name)
    finally:
        engine.dispose()


def test_the_order_of_columns_does_not_matter(tmp_path: Path):
    assert write(f"sqlite:///{tmp_path / 'ledger.db'}", dict(reversed(ROW.items()))) == [ROW]


def test_amounts_of_the_same_key_are_added(tmp_path: Path):
    (row,) = write(f"sqlite:///{tmp_path / 'ledger.db'}", ROW, ROW)
    assert row == ROW | {"gpu_ms": 16, "known_ms": 2, "held_ms": 4}


@pytest.mark.parametrize("row", [{**ROW, "new_column": 1}, {name: ROW[name] for name in ROW if name != "held_ms"}])
def test_a_missing_or_an_unknown_column_is_an_error(tmp_path: Path, row: dict[str, object]):
    with pytest.raises(ValueError, match="columns of fleet_hourly"):
        write(f"sqlite:///{tmp_path / 'ledger.db'}", row)
