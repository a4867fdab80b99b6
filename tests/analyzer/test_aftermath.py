"""What follows a cycle costs its own part: books that fail for a reason nobody foresaw cost no verdict, no notice."""

from pathlib import Path

import pytest

from gpusteward.analyzer.aftermath import Aftermath
from gpusteward.analyzer.metrics.delivery_metrics import aftermath_families
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.core import analyzer_metrics as metrics
from tests.analyzer.ledger.cycles import RESTING, START, cycle, sqlite_url
from tests.analyzer.usage_tables import allocation


def test_a_fault_nobody_foresaw_stops_the_books_is_shown_and_is_over_with_the_next_cycle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    settings = Settings(ledger=LedgerSettings(url=sqlite_url(tmp_path)))
    aftermath = Aftermath(settings, lambda: settings, read_wish=lambda _namespace, _pod: "")
    told = []
    monkeypatch.setattr(aftermath.notifier, "notify", told.append)
    results = [cycle([(allocation(), RESTING)], START + 300 * number) for number in range(3)]
    try:
        aftermath.follow(results[0])
        with monkeypatch.context() as patch:
            patch.setattr("gpusteward.analyzer.ledger.ledger.make_sheet", lambda *_, **__: 1 // 0)
            aftermath.follow(results[1])
            assert "ZeroDivisionError" in aftermath.describe()["ledger"]["error"]
            assert ledger_up(aftermath) == 0
        aftermath.follow(results[2])
        assert (aftermath.describe()["ledger"]["error"], ledger_up(aftermath)) == ("", 1)
        assert told == results
    finally:
        aftermath.stop()


def ledger_up(aftermath: Aftermath) -> float:
    families = {family.metric: family.samples for family in aftermath_families(aftermath.describe())}
    ((_, value),) = families[metrics.LEDGER_UP]
    return value
