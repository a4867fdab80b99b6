"""The idle spells in memory: those of the ledger, updated cycle by cycle."""

import pytest

from gpusteward.analyzer.judge.resumption import HALF_HOUR
from gpusteward.analyzer.ledger.spells.spell_memory import SpellMemory
from gpusteward.analyzer.ledger.spells.spell_reader import read_spells
from gpusteward.core.node.containers import WorkloadKey
from tests.analyzer.ledger.cycles import open_ledger, sqlite_url
from tests.analyzer.ledger.test_idle_spells import OTHER, POD, play

KEY = WorkloadKey("Deployment", POD.container.namespace, POD.container.workload.name)
SCRIPT = "w" + "iiiiiw" * 14


def test_it_is_the_same_after_every_cycle_as_after_a_restart(tmp_path):
    ledger = open_ledger(sqlite_url(tmp_path))
    memory = SpellMemory(ledger.engine)
    for result in play(SCRIPT):
        ledger.record(result)
        memory.update(result)
    fresh = SpellMemory(ledger.engine)
    fresh.update(result)
    assert len(memory.history) == len(fresh.history) == 14
    for age in (0.0, 600.0, 1500.0, 4000.0):
        assert memory.history.estimate(KEY, age=age, horizon=HALF_HOUR) == fresh.history.estimate(
            KEY, age=age, horizon=HALF_HOUR
        )
    chance = memory.history.estimate(KEY, age=1500.0, horizon=HALF_HOUR)
    assert (chance.probability, chance.of) == (1.0, "workload")
    ledger.close()


def test_gpus_that_rest_together_count_once(tmp_path):
    ledger = open_ledger(sqlite_url(tmp_path))
    memory = SpellMemory(ledger.engine)
    for result in play(SCRIPT, other=""):
        ledger.record(result)
        memory.update(result)
    assert len(read_spells(ledger.engine, since=0)) == 28
    assert len(memory.history.find_past(KEY).seconds) == 14
    ledger.close()


def test_a_spell_that_goes_on_counts_as_soon_as_it_is_long_enough(tmp_path):
    ledger = open_ledger(sqlite_url(tmp_path))
    memory = SpellMemory(ledger.engine)
    for result in play("w" + "i" * 40, other="i"):
        ledger.record(result)
        memory.update(result)
    past = memory.history.find_past(KEY)
    assert len(past.seconds) == 1  # both pods belong to the workload, which is idle as a whole
    assert past.seconds[0] == pytest.approx(41 * 300, abs=600)
    assert not past.has_resumed.any()
    assert OTHER.container.workload.name == KEY.name
    ledger.close()


def test_a_result_tells_the_chance_of_its_idle_workloads_only(tmp_path):
    from dataclasses import replace

    ledger = open_ledger(sqlite_url(tmp_path))
    memory = SpellMemory(ledger.engine)
    results = play(SCRIPT + "iii", other="i")
    for result in results:
        ledger.record(result)
        memory.update(result)
    told = replace(results[-1], spells=memory.history)
    found = [told.estimate_resumption(number) for number in range(len(told.workloads))]
    assert found[0] is not None
    assert found[0].within_30_minutes.spells > 0
    working = play("www")[-1]
    assert working.estimate_resumption(0) is None
    ledger.close()


def test_a_database_that_fails_leaves_it_as_it_was(tmp_path):
    ledger = open_ledger(sqlite_url(tmp_path))
    memory = SpellMemory(ledger.engine)
    results = play(SCRIPT)
    for result in results[:-1]:
        ledger.record(result)
        memory.update(result)
    before = memory.history
    with ledger.engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE idle_spells")
    memory.update(results[-1])
    assert memory.history is before
    ledger.close()


def test_the_control_webhook_says_for_how_long_idle_gpus_can_be_lent(tmp_path):
    import json
    from dataclasses import replace

    from gpusteward.analyzer.notify.control_webhook import control_events

    ledger = open_ledger(sqlite_url(tmp_path))
    memory = SpellMemory(ledger.engine)
    results = play("w" + "i" * 20, other="i")
    for result in results:
        ledger.record(result)
        memory.update(result)
    plain = [json.loads(each.body) for each in control_events(results[-1])]
    told = [json.loads(each.body) for each in control_events(replace(results[-1], spells=memory.history))]
    assert "lendable" not in plain[0]
    assert told[0] == {**plain[0], "lendable": {"1h": None, "4h": None, "morning": None}}  # too few spells
    ledger.close()
