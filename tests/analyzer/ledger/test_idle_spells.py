"""Idle spells: what opens, continues and ends them, and that the ledger holds the same ones after any restart."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusteward.analyzer.judge.history import VerdictHistory
from gpusteward.analyzer.judge.judge import judge
from gpusteward.analyzer.judge.workloads import judge_workloads
from gpusteward.analyzer.ledger.database.db_engine import with_write_lock
from gpusteward.analyzer.ledger.database.periods import DAY_MS
from gpusteward.analyzer.ledger.identities import make_allocation_id
from gpusteward.analyzer.ledger.ledger import Ledger
from gpusteward.analyzer.ledger.spells.idle_spells import mark_reclaimed
from gpusteward.analyzer.ledger.spells.spell_reader import read_spells
from gpusteward.analyzer.results import Result
from gpusteward.core.idle_spells import SpellEnd
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.core.verdicts import Proof, Signature
from tests.analyzer.ledger.cycles import (
    INTERVAL,
    RESTING,
    SETTINGS,
    START,
    UNREAD,
    WORKING,
    hourly,
    open_ledger,
    sqlite_url,
)
from tests.analyzer.spells import make_spell
from tests.analyzer.usage_tables import allocation, table_of

STATS = {"w": WORKING, "i": RESTING, "u": UNREAD}
POD = allocation(0, started_at=START - 86_400)
OTHER = allocation(1, started_at=START - 86_400)


def play(script: str, *, history: VerdictHistory | None = None, begin: float = START, other: str = "w") -> list[Result]:
    """A cycle for each letter: w work, i idle, u unknown, - not there, . no cycle. Another pod is always there;
    without a letter of its own it does the same."""
    history, results = history or VerdictHistory(), []
    for number, letter in enumerate(script):
        if letter == ".":
            continue
        rows = {OTHER: STATS[other or letter]} | ({} if letter == "-" else {POD: STATS[letter]})
        table = table_of(*rows.values(), allocations=list(rows), at=begin + INTERVAL * number)
        verdicts, history = judge(table, SETTINGS.rules, history, now=table.at)
        results.append(Result(1, table.at, 0.1, SETTINGS, verdicts, judge_workloads(verdicts, SETTINGS.rules)))
    return results


def spells_of(ledger: Ledger, key=POD):
    """Start and end in cycles, and what ended it."""
    table = read_spells(ledger.engine, since=0)
    spells = [make_spell(table, row) for row in np.lexsort((table.started_at, table.allocation_id)).tolist()]
    return [
        (
            (each.started_at - START) / INTERVAL,
            None if each.ended_at is None else (each.ended_at - START) / INTERVAL,
            each.ended_by,
        )
        for each in spells
        if each.allocation_id == make_allocation_id(key)
    ]


@pytest.fixture(scope="session")
def new_folder(tmp_path_factory: pytest.TempPathFactory, sqlite_ledger: Path) -> Callable[[], Path]:
    """Makes a folder with a ledger without rows, for each example of a property."""

    def make() -> Path:
        folder = tmp_path_factory.mktemp("ledger")
        shutil.copy(sqlite_ledger, folder)
        return folder

    return make


def record(tmp_path, script: str, **options):
    ledger = open_ledger(sqlite_url(tmp_path))
    for result in play(script, **options):
        ledger.record(result)
    assert ledger.describe()["error"] == ""
    return ledger


# The window is two cycles long: a verdict is idle two cycles after the last work, and says since when.
CASES = {
    "work ends it at the last idle cycle": ("wwiiiiw", [(0, 5, SpellEnd.WORK)]),
    "it has not ended": ("wwiii", [(0, None, None)]),
    "two spells": ("wiiwwiiw", [(-1, 2, SpellEnd.WORK), (3, 6, SpellEnd.WORK)]),
    "a deleted pod releases it": ("wiiii--", [(-1, 4, SpellEnd.RELEASED)]),
    "a short unknown time is bridged": ("wiiiuiiw", [(-1, 6, SpellEnd.WORK)]),
    "work after a long unknown time is not what ended it": ("wiiiuuuuw", [(-1, 3, SpellEnd.LOST)]),
    "idleness after a long unknown time is a spell of its own": (
        "wiiiuuuuiiw",
        [(-1, 3, SpellEnd.LOST), (6, 9, SpellEnd.WORK)],
    ),
    "a gap of the data ends it as lost": ("wiii......ww", [(-1, 3, SpellEnd.LOST)]),
    "after a gap a new one begins": ("wiii......iiw", [(-1, 3, SpellEnd.LOST), (8, 11, SpellEnd.WORK)]),
    "a pod that appears again was not released": ("wiiii-iiw", [(-1, 7, SpellEnd.WORK)]),
    "a pod that appears again after long was lost": ("wiiii---w", [(-1, 4, SpellEnd.LOST)]),
}


@pytest.mark.parametrize(("script", "expected"), CASES.values(), ids=CASES)
def test_a_spell_is_what_was_seen(tmp_path, script, expected):
    ledger = record(tmp_path, script)
    found = [(round(start), end, by) for start, end, by in spells_of(ledger)]
    assert found == expected
    ledger.close()


def test_a_spell_says_how_it_was_proven_and_whose_it_is(tmp_path):
    ledger = record(tmp_path, "wiiiw")
    table = read_spells(ledger.engine, since=0)
    spell = make_spell(table, 0)
    workload = POD.container.workload
    assert spell.workload == WorkloadKey(workload.kind, workload.namespace, workload.name)
    assert (spell.proof, spell.signature, spell.gpus) == (Proof.INTEGRATED, Signature.PARKED, 1.0)
    assert (spell.model, spell.pod) == (POD.model, POD.container.pod)
    ledger.close()


@settings(max_examples=40, deadline=None)
@given(st.text("wwiiiiu-.", min_size=4, max_size=30), st.data())
def test_a_restart_at_any_cycle_changes_no_spell(new_folder: Callable[[], Path], script, data):
    results = play("w" + script)
    cut = data.draw(st.integers(0, len(results)))
    found = []
    for restarts in ([], [cut]):
        url = sqlite_url(new_folder())
        ledger = open_ledger(url)
        for number, result in enumerate(results):
            if number in restarts:
                ledger.close()
                ledger = open_ledger(url)
            ledger.record(result)
        found.append(spells_of(ledger))
        ledger.close()
    assert found[0] == found[1]


@settings(max_examples=40, deadline=None)
@given(st.text("wwiiii", min_size=4, max_size=40))
def test_spells_add_up_to_the_idle_time_of_the_usage_rows(new_folder: Callable[[], Path], script):
    ledger = record(new_folder(), "www" + script)
    last = START + INTERVAL * (2 + len(script))
    spells = spells_of(ledger)
    seconds = sum(((last - START) / INTERVAL if end is None else end) - start for start, end, _ in spells) * INTERVAL
    assert seconds * 1000 == pytest.approx(sum(row["idle_ms"] for row in hourly(ledger.engine)), abs=1)
    ledger.close()


@settings(max_examples=60, deadline=None)
@given(st.text("wwiiiu-.", min_size=4, max_size=40))
def test_spells_of_an_allocation_never_overlap_and_only_the_last_is_open(new_folder: Callable[[], Path], script):
    ledger = record(new_folder(), "w" + script)
    spells = sorted(spells_of(ledger))
    ends = [end for _, end, _ in spells]
    assert None not in ends[:-1]
    assert all(end >= start for start, end, _ in spells if end is not None)
    assert all(before <= after for before, (after, _, _) in zip(ends[:-1], spells[1:], strict=True))
    ledger.close()


def test_a_spell_is_kept_as_long_as_reports(tmp_path):
    ledger = record(tmp_path, "wiiiwww", other="i")
    days = ledger.settings.daily_days
    ledger.prune(START + (days - 1) * DAY_MS / 1000)
    assert len(read_spells(ledger.engine, since=0)) == 2
    while ledger.prune(START + (days + 2) * DAY_MS / 1000):
        pass
    ledger.prune(START + (days + 2) * DAY_MS / 1000)
    assert spells_of(ledger) == []
    assert len(spells_of(ledger, OTHER)) == 1  # it has not ended
    ledger.close()


def test_a_release_by_us_is_marked_as_such(tmp_path):
    ledger = record(tmp_path, "wiiii--")
    with with_write_lock(ledger.engine).begin() as connection:
        mark_reclaimed(connection, [make_allocation_id(POD)], since_ms=int(START * 1000))
    assert [by for *_, by in spells_of(ledger)] == [SpellEnd.RECLAIMED]
    ledger.close()


def test_only_changes_are_written(tmp_path):
    """The rows of spells that go on are not touched: 50,000 of them would cost as much as the usage rows."""
    ledger = record(tmp_path, "wiii")
    statements = []
    from sqlalchemy import event

    event.listen(ledger.engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
    for result in play("wiiiiiii")[4:]:
        ledger.record(replace(result))
    assert not [each for each in statements if "INTO idle_spells" in each]
    ledger.close()
