"""Where the ledger is, as `serve` logs it."""

from pathlib import Path

from gpusteward.analyzer.ledger_access import LedgerAccess
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.settings.ledger import LedgerSettings


def location(**settings: object) -> str:
    access = LedgerAccess(LedgerSettings.model_validate(settings), PriceSettings)
    try:
        return access.location
    finally:
        access.close()


def test_a_file_is_named_by_its_path(tmp_path: Path):
    assert location(directory=tmp_path) == str(tmp_path / "gpusteward.db")


def test_a_database_is_named_without_its_password():
    shown = location(url="postgresql://steward:secret@db.example:5432/gpu?sslpassword=hidden")
    assert "db.example:5432/gpu" in shown
    assert "secret" not in shown
    assert "hidden" not in shown


def test_a_disabled_ledger_is_named_as_such():
    assert location(enabled=False) == "disabled"
