"""What a cycle adds to the ledger."""

import json
from dataclasses import replace

import pytest

from gpusteward.analyzer.ledger.ledger import Ledger
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.analyzer.tables import EndedHolder
from gpusteward.core.node.containers import Workload
from gpusteward.core.usages import AllocationKey, Measure, Stat
from tests.analyzer.ledger.cycles import (
    RESTING,
    SETTINGS,
    START,
    UNREAD,
    WORKING,
    cycle,
    cycles,
    hour,
    hourly,
    minutes_of,
    open_ledger,
    read_ledger,
    read_table,
    remember,
)
from tests.analyzer.usage_tables import GIB, allocation, signal

pytestmark = pytest.mark.slow

OLD = START - 86_400


@pytest.fixture
def ledger(database_url):
    ledger = open_ledger(database_url)
    yield ledger
    ledger.close()


def record(ledger: Ledger, *results) -> None:
    for result in results:
        ledger.record(result)
    assert ledger.describe()["error"] == ""


def test_time_between_two_cycles_is_recorded_with_the_activity_of_the_second(ledger):
    record(ledger, *cycles([(allocation(0), WORKING)], [0, 5]), *cycles([(allocation(0), RESTING)], [10, 15, 20]))
    (row,) = hourly(ledger.engine)
    assert row["hour_ms"] == hour()
    assert minutes_of(row) == (20, 5, 15, 0)


def test_a_cycle_recorded_twice_counts_once(ledger):
    results = cycles([(allocation(0), WORKING)], [0, 5, 10])
    record(ledger, *results)
    before = read_ledger(ledger.engine)
    record(ledger, *results, results[1])
    assert read_ledger(ledger.engine) == before


def test_a_cycle_recorded_by_two_analyzers_counts_once(database_url):
    one, other = open_ledger(database_url), open_ledger(database_url)
    for result in cycles([(allocation(0), WORKING)], [0, 5, 10, 15]):
        record(one, result)
        record(other, result)
    assert minutes_of(hourly(one.engine)[0]) == (15, 15, 0, 0)
    assert len(read_table(one.engine, "verdict_changes")) == 1
    one.close()
    other.close()


def test_two_analyzers_that_take_turns_record_every_minute_once(database_url):
    one, other = open_ledger(database_url), open_ledger(database_url)
    held = [(allocation(0), WORKING), (allocation(1), RESTING)]
    for number, result in enumerate(cycles(held, range(0, 55, 5))):
        record((one, other)[number % 2], result)
    assert minutes_of(hourly(one.engine)[0]) == (50, 50, 0, 0)
    assert minutes_of(hourly(one.engine, pod="pod-1")[0]) == (50, 0, 50, 0)
    assert [row["ended_ms"] for row in read_table(one.engine, "allocations")] == [None, None]
    one.close()
    other.close()


def test_a_cycle_over_the_hour_is_divided_at_the_hour(ledger):
    record(ledger, *cycles([(allocation(0), WORKING)], [55, 58, 63]))
    assert [(row["hour_ms"], minutes_of(row)[0]) for row in hourly(ledger.engine)] == [(hour(0), 5), (hour(1), 3)]


def test_what_could_not_be_judged_is_unknown_time_not_idle_time(ledger):
    record(ledger, *cycles([(allocation(0), UNREAD)], [0, 5]))
    (row,) = hourly(ledger.engine)
    assert minutes_of(row) == (5, 0, 0, 5)
    assert row["energy_mj"] is None
    assert (row["energy_ms"], row["scored_ms"], row["core_peak"], row["memory_peak_bytes"]) == (0, 0, None, None)


def test_beyond_three_intervals_a_gap_is_unknown(ledger):
    record(ledger, *cycles([(allocation(0), WORKING)], [0, 50]))
    (row,) = hourly(ledger.engine)
    assert minutes_of(row) == (50, 15, 0, 35)


def test_a_gap_of_hours_is_unknown_hour_by_hour(ledger):
    record(ledger, *cycles([(allocation(0), WORKING)], [30, 240]))
    assert [minutes_of(row) for row in hourly(ledger.engine)] == [
        (30, 0, 0, 30),
        (60, 0, 0, 60),
        (60, 0, 0, 60),
        (60, 15, 0, 45),
    ]


def test_a_gap_is_not_recorded_for_an_allocation_that_began_after_it(ledger):
    """Its samples fill the window of ten minutes; what was before nobody saw."""
    new = allocation(1, started_at=None)
    record(ledger, *cycles([(allocation(0), WORKING)], [0]))
    record(ledger, *cycles([(allocation(0), WORKING), (new, WORKING)], [50]))
    assert minutes_of(hourly(ledger.engine, pod="pod-1")[0]) == (10, 10, 0, 0)


def test_a_new_allocation_is_recorded_from_the_start_of_its_pod(ledger):
    record(ledger, *cycles([(allocation(0), WORKING)], [0]))
    started = allocation(1, started_at=START + 60 * 3)
    record(ledger, *cycles([(allocation(0), WORKING), (started, WORKING)], [5]))
    assert minutes_of(hourly(ledger.engine, pod="pod-1")[0]) == (2, 2, 0, 0)


def test_a_new_allocation_with_unknown_start_is_recorded_for_as_long_as_its_samples_cover(ledger):
    """Three minutes of the window of ten."""
    rows = [(allocation(0), WORKING), (allocation(1, started_at=None), WORKING)]
    record(ledger, *cycles(rows[:1], [0]), *cycles(rows, [5], coverage=[1.0, 0.3]))
    assert minutes_of(hourly(ledger.engine, pod="pod-1")[0])[0] == 3
    record(ledger, *cycles(rows, [10]))
    assert minutes_of(hourly(ledger.engine, pod="pod-1")[0])[0] == 8


def test_a_new_allocation_without_start_and_samples_is_recorded_from_its_first_observation(ledger):
    rows = [(allocation(0), WORKING), (allocation(1, started_at=None), WORKING)]
    record(ledger, *cycles(rows[:1], [0]), *cycles(rows, [5], coverage=[1.0, 0.0]))
    assert hourly(ledger.engine, pod="pod-1") == []
    record(ledger, *cycles(rows, [10]))
    assert minutes_of(hourly(ledger.engine, pod="pod-1")[0]) == (5, 5, 0, 0)


def gone(held: AllocationKey, minute: float, *, seconds: float, works: bool = True) -> EndedHolder:
    """Last seen at this minute after the start, scraped every 30 s."""
    return EndedHolder(held, START + 60 * minute, 30.0, seconds, works)


def test_a_pod_that_lived_between_two_cycles_is_recorded_with_its_whole_time(ledger):
    short = allocation(1, started_at=None)
    record(ledger, *cycles([(allocation(0), WORKING)], [0]))
    record(ledger, *cycles([(allocation(0), WORKING)], [5], ended=[gone(short, 3.75, seconds=120)]))
    (row,) = hourly(ledger.engine, pod="pod-1")
    assert minutes_of(row) == (2, 2, 0, 0)
    assert (row["active_cost"], row["unknown_cost"]) == (pytest.approx(2_000_000 / 30, abs=1), 0)
    (known,) = [row for row in read_table(ledger.engine, "allocations") if row["pod"] == "pod-1"]
    assert [known[name] - hour() for name in ("first_ms", "last_ms", "ended_ms")] == [120_000, 240_000, 240_000]


def test_the_time_of_an_ended_pod_is_recorded_once_although_two_windows_contain_it(ledger):
    short = gone(allocation(1, started_at=None), 3.75, seconds=120)
    rows = [(allocation(0), WORKING)]
    record(ledger, *cycles(rows, [0]), *cycles(rows, [5, 10], ended=[short]))
    assert sum(minutes_of(row)[0] for row in hourly(ledger.engine, pod="pod-1")) == 2


def test_the_last_minutes_of_a_pod_are_recorded_until_it_ended(ledger):
    """With the id that it had: its owner and uid are no longer known."""
    both = [(allocation(0), WORKING), (allocation(1), WORKING)]
    nameless = replace(allocation(1), container=replace(allocation(1).container, pod_uid="", workload=None))
    record(ledger, *cycles(both, [0, 5]))
    record(ledger, *cycles(both[:1], [10], ended=[gone(nameless, 7.75, seconds=480)]))
    (row,) = hourly(ledger.engine, pod="pod-1")
    assert minutes_of(row) == (8, 8, 0, 0)
    (known,) = [row for row in read_table(ledger.engine, "allocations") if row["pod"] == "pod-1"]
    assert (known["owner_name"], known["ended_ms"] - hour()) == ("server", 480_000)


def times_of(ledger, pod: str) -> dict[str, float]:
    """Minutes by the uid of the pod."""
    uids = {row["id"]: row["pod_uid"] for row in read_table(ledger.engine, "allocations")}
    times: dict[str, float] = {}
    for row in hourly(ledger.engine, pod=pod):
        uid = uids[row["allocation_id"]]
        times[uid] = times.get(uid, 0) + minutes_of(row)[0]
    return times


def as_pod(held: AllocationKey, uid: str, started_at: float | None = None) -> AllocationKey:
    return replace(held, container=replace(held.container, pod_uid=uid, started_at=started_at))


def test_two_ended_pods_of_one_name_are_both_recorded(ledger):
    """As dcgm-exporter reports a pod that was restarted: without uid, so that both have one id."""
    rows, web = [(allocation(0), WORKING)], as_pod(allocation(1), "")
    first, second = gone(web, 1.25, seconds=60), gone(web, 3.75, seconds=90, works=False)
    other = gone(replace(as_pod(allocation(2), ""), gpu_uuid="GPU-1"), 2.25, seconds=45)  # between them
    record(ledger, *cycles(rows, [0]), *cycles(rows, [5], ended=[second, first, other]))
    (row,) = hourly(ledger.engine, pod="pod-1")
    assert minutes_of(row) == (2.5, 1, 0, 1.5)
    assert times_of(ledger, "pod-2") == {"": 0.75}
    (known,) = [row for row in read_table(ledger.engine, "allocations") if row["pod"] == "pod-1"]
    assert [known[name] - hour() for name in ("first_ms", "last_ms", "ended_ms")] == [30_000, 240_000, 240_000]


def test_a_pod_that_returned_under_its_name_is_recorded_without_the_pause(ledger):
    """It is there in both cycles; its GPU was free from minute 6 to minute 8."""
    rows = [(allocation(0), WORKING), (as_pod(allocation(1), ""), WORKING)]
    left = replace(gone(rows[1][0], 5.75, seconds=345), returned_at=START + 8 * 60)
    record(ledger, *cycles(rows, [0, 5]), *cycles(rows, [10], ended=[left], coverage=[1.0, 0.8]))
    assert times_of(ledger, "pod-1") == {"": 8}
    assert [row["ended_ms"] for row in read_table(ledger.engine, "allocations")] == [None, None]
    record(ledger, *cycles(rows, [15], ended=[left], coverage=[1.0, 0.8]))
    assert times_of(ledger, "pod-1") == {"": 13}


def test_a_pod_whose_uid_is_known_has_only_its_own_time(ledger):
    """The metrics have no uid; the API server has that of the pod that is there. An earlier one ended at minute 6, and
    another one, which no cycle has seen, held the GPU from minute 7 until it started at minute 9."""
    rows = [(allocation(0), WORKING), (as_pod(allocation(1), "a", START - 600), WORKING)]
    record(ledger, *cycles(rows, [0, 5]))
    left = replace(gone(as_pod(allocation(1), ""), 5.75, seconds=345), returned_at=START + 7 * 60)
    rows[1] = as_pod(allocation(1), "c", START + 9 * 60), WORKING
    record(ledger, *cycles(rows, [10], ended=[left], coverage=[1.0, 0.9]))
    assert times_of(ledger, "pod-1") == {"a": 6, "": 2, "c": 1}


def test_a_pod_that_was_replaced_at_once_is_recorded_until_the_next_one_started(ledger):
    """No sample is missing between them."""
    rows = [(allocation(0), WORKING), (as_pod(allocation(1), "a", START - 600), WORKING)]
    record(ledger, *cycles(rows, [0, 5]))
    rows[1] = as_pod(allocation(1), "b", START + 8 * 60), WORKING
    record(ledger, *cycles(rows, [10]))
    assert times_of(ledger, "pod-1") == {"a": 8, "b": 2}


def test_time_of_an_ended_pod_without_work_is_unknown(ledger):
    rows = [(allocation(0), WORKING)]
    short = gone(allocation(1, started_at=None), 3.75, seconds=120, works=False)
    record(ledger, *cycles(rows, [0]), *cycles(rows, [5], ended=[short]))
    assert minutes_of(hourly(ledger.engine, pod="pod-1")[0]) == (2, 0, 0, 2)


def test_never_is_a_gpu_recorded_for_two_pods_that_followed_each_other(ledger):
    """The second one is there now; by its samples it began before the first one is taken to have ended."""
    first, second = allocation(1, started_at=None), replace(allocation(2, started_at=None), gpu_uuid="GPU-1")
    rows = [(allocation(0), WORKING), (second, WORKING)]
    record(ledger, *cycles(rows[:1], [0]))
    record(ledger, *cycles(rows, [5], ended=[gone(first, 3, seconds=180)], coverage=[1.0, 0.25]))
    times = [sum(minutes_of(row)[0] for row in hourly(ledger.engine, pod=pod)) for pod in ("pod-1", "pod-2")]
    assert times == [2.25, 2.5]


def test_a_free_gpu_and_what_was_held_of_it_add_up_in_the_fleet(ledger):
    rows, fleet = [(allocation(0), WORKING)], {("node-0", "H100"): 8}
    short = gone(allocation(1, started_at=None), 3.75, seconds=120)
    record(ledger, *cycles(rows, [0], fleet=fleet), *cycles(rows, [5], fleet=fleet, ended=[short]))
    (row,) = read_table(ledger.engine, "fleet_hourly")
    assert row["held_ms"] == 7 * 60_000


def test_the_very_first_cycle_records_no_time(ledger):
    record(ledger, *cycles([(allocation(0, started_at=OLD), WORKING)], [0]))
    assert hourly(ledger.engine) == []
    assert ledger.describe()["booked_at"] == START


def test_an_allocation_that_disappears_ended_when_it_was_last_observed(ledger):
    record(
        ledger,
        *cycles([(allocation(0), WORKING), (allocation(1), WORKING)], [0, 5]),
        *cycles([(allocation(0), WORKING)], [10]),
    )
    ended = {row["pod"]: (row["last_ms"], row["ended_ms"]) for row in read_table(ledger.engine, "allocations")}
    assert ended["pod-1"] == (hour() + 300_000, hour() + 300_000)
    assert ended["pod-0"][1] is None
    assert minutes_of(hourly(ledger.engine, pod="pod-1")[0]) == (5, 5, 0, 0)


def test_an_allocation_that_returns_is_held_again_from_then_on(ledger):
    both = [(allocation(0), WORKING), (allocation(1), WORKING)]
    record(ledger, *cycles(both, [0, 5]), *cycles(both[:1], [10, 15, 20]), *cycles(both, [25]))
    (row,) = [row for row in read_table(ledger.engine, "allocations") if row["pod"] == "pod-1"]
    assert (row["first_ms"], row["ended_ms"]) == (hour(), None)
    assert minutes_of(hourly(ledger.engine, pod="pod-1")[0]) == (10, 10, 0, 0)


def test_an_empty_cluster_ends_all_allocations(ledger):
    record(ledger, *cycles([(allocation(0), WORKING)], [0, 5]), *cycles([], [10]))
    assert [row["ended_ms"] for row in read_table(ledger.engine, "allocations")] == [hour() + 300_000]


def test_allocations_of_one_gpu_share_its_time(ledger):
    three = [(replace(allocation(number, share="time-sliced"), gpu_uuid="GPU-x"), WORKING) for number in range(3)]
    record(ledger, *cycles(three, [0, 5]))
    times = [row["allocated_ms"] for row in read_table(ledger.engine, "usage_hourly")]
    assert times == [100_000] * 3


def test_cost_is_time_by_price_and_divided_as_the_time_is(ledger):
    cheap = Settings(prices=PriceSettings(per_gpu_hour={"H100": 3.6}, discount_percent={"team": 50}))
    record(ledger, cycle([(allocation(0), WORKING)], START, settings=cheap))
    record(ledger, cycle([(allocation(0), RESTING)], START + 300, settings=cheap))
    (row,) = hourly(ledger.engine)
    assert (row["active_cost"], row["idle_cost"], row["unknown_cost"]) == (0, 150_000, 0)


def test_energy_is_mean_power_by_time_and_the_score_a_mean_over_time(ledger):
    stats = WORKING | signal(Measure.MEMORY_TOTAL, 80 * GIB) | {(Measure.POWER, Stat.MEAN): 400.0}
    results = cycles([(allocation(0), stats)], [0, 5])
    record(ledger, *results)
    (row,) = hourly(ledger.engine)
    assert (row["energy_mj"], row["energy_ms"]) == (400 * 300_000, 300_000)
    assert row["score_ms_sum"] / row["scored_ms"] == pytest.approx(float(results[1].verdicts.score[0]), abs=1e-4)
    assert (row["core_peak"], row["memory_peak_bytes"]) == (0.9, 40 * GIB)
    assert row["memory_total_bytes"] == 80 * GIB


def test_tokens_of_a_workload_are_shared_by_its_gpus_and_unknown_ones_are_null(ledger):
    served = WORKING | {(Measure.SERVED_TOKENS, Stat.COUNT): 12_000.0}  # in a window of ten minutes: 20 per second
    prices = Settings(prices=PriceSettings(per_gpu_hour={"H100": 3.6}))
    other = allocation(1, owner=Workload("Job", "team", "other"))
    for at, rows in ((START, served), (START + 300, served), (START + 600, WORKING), (START + 900, served)):
        record(ledger, cycle([(allocation(0), rows), (other, WORKING)], at, settings=prices))
    row, rest = hourly(ledger.engine)[0], hourly(ledger.engine, pod="pod-1")[0]
    assert (row["tokens"], row["served_ms"], row["served_cost"]) == (20 * 600, 600_000, 600_000)
    assert (rest["tokens"], rest["served_ms"], rest["served_cost"]) == (None, 0, 0)


def test_two_gpus_of_one_server_share_its_tokens(ledger):
    served = WORKING | {(Measure.SERVED_TOKENS, Stat.COUNT): 12_001.0}
    one = allocation(0)
    two = replace(one, gpu_uuid="GPU-other", gpu_index="7")
    record(ledger, *cycles([(one, served), (two, served)], [0, 5]))
    assert [row["tokens"] for row in hourly(ledger.engine)] == [3000, 3000]


def test_the_peak_of_an_hour_is_its_highest_and_survives_missing_samples(ledger):
    for minute, peak in ((0, 0.2), (5, 0.7), (10, 0.4)):
        record(ledger, *cycles([(allocation(0), WORKING | {(Measure.CORE, Stat.PEAK): peak})], [minute]))
    record(ledger, *cycles([(allocation(0), UNREAD)], [15]))
    (row,) = hourly(ledger.engine)
    assert row["core_peak"] == 0.7


def test_all_existing_gpus_are_recorded_allocated_or_not(ledger):
    record(ledger, *cycles([(allocation(0), WORKING)], [0, 5], fleet={("n1", "H100"): 8, ("n2", "A100"): 0}))
    assert read_table(ledger.engine, "fleet_hourly") == [
        {
            "hour_ms": hour(),
            "node": "n1",
            "model": "H100",
            "gpu_ms": 8 * 300_000,
            "known_ms": 300_000,
            "held_ms": 0,  # the allocation is on another node
            "cluster": "",
        }
    ]


def test_a_verdict_is_written_only_when_it_changes(ledger):
    works, rests = cycles([(allocation(0), WORKING)], [0, 5, 10]), cycles([(allocation(0), RESTING)], [15, 20])
    record(ledger, *works, *remember(rests))
    changes = read_table(ledger.engine, "verdict_changes")
    assert [(row["at_ms"], row["activity"], row["gpus"], row["idle_gpus"]) for row in changes] == [
        (hour(), "active", 1, 0),
        (hour() + 900_000, "idle", 1, 1),
    ]


def test_a_restart_neither_repeats_nor_loses_verdicts(database_url):
    for rows, minute in ((WORKING, 0), (WORKING, 5), (RESTING, 10)):
        ledger = open_ledger(database_url)
        record(ledger, *cycles([(allocation(0), rows)], [minute]))
        changes = [row["activity"] for row in read_table(ledger.engine, "verdict_changes")]
        ledger.close()
    assert changes == ["active", "idle"]


def test_an_owner_that_is_found_later_is_recorded(ledger):
    unowned = allocation(0)
    unowned = replace(unowned, container=replace(unowned.container, workload=None))
    record(ledger, *cycles([(unowned, WORKING)], [0]))
    assert read_table(ledger.engine, "allocations")[0]["owner_kind"] == "Pod"
    record(ledger, *cycles([(allocation(0, owner=Workload("Job", "team", "train")), WORKING)], [5]))
    (row,) = read_table(ledger.engine, "allocations")
    assert (row["owner_kind"], row["owner_name"], row["first_ms"]) == ("Job", "train", hour())


@pytest.mark.parametrize(
    ("labels", "user"),
    [
        ((), ""),
        ((("app", "x"),), ""),
        ((("hub.jupyter.org/username", "ann"), ("gpusteward.io/user", "bob")), "bob"),
        ((("label_hub_jupyter_org_username", "ann"),), "ann"),
        ((("gpusteward.io/user", ""), ("user", "eve")), "eve"),
    ],
)
def test_a_user_is_found_in_the_labels_of_the_pod(tmp_path, labels, user):
    ledger = open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    held = allocation(0)
    record(ledger, *cycles([(replace(held, container=replace(held.container, pod_labels=labels)), WORKING)], [0]))
    assert read_table(ledger.engine, "allocations")[0]["user_name"] == user
    ledger.close()


def test_hostile_texts_do_not_stop_recording(ledger):
    held = allocation(0, owner=Workload("Job", "team", "n\0ame" * 2000))
    held = replace(held, model="\ud800 model'; DROP TABLE progress; --", node="n" * 9000)
    record(ledger, *cycles([(held, WORKING)], [0, 5], fleet={("n" * 300, "\0"): 1, ("n" * 301, "\0"): 1}))
    assert read_table(ledger.engine, "fleet_hourly")[0]["gpu_ms"] == 600_000
    (row,) = read_table(ledger.engine, "allocations")
    assert len(row["node"]) == 253
    assert "\0" not in row["owner_name"]


@pytest.mark.parametrize("value", [1e300, -1.0, float("inf")])
def test_implausible_numbers_are_unknown(ledger, value):
    wild = signal(Measure.MEMORY_USED, value) | signal(Measure.MEMORY_TOTAL, value) | signal(Measure.POWER, value)
    record(ledger, *cycles([(allocation(0, started_at=value), WORKING | wild)], [0, 5]))
    (row,) = hourly(ledger.engine)
    assert row["allocated_ms"] == 300_000
    assert (row["memory_peak_bytes"], row["memory_total_bytes"], row["energy_mj"]) == (None, None, None)


def test_one_allocation_on_two_rows_is_recorded_once(ledger):
    record(ledger, *cycles([(allocation(0), WORKING), (allocation(0), WORKING)], [0, 5]))
    assert len(read_table(ledger.engine, "allocations")) == 1


def test_prices_changed_while_running_count_from_the_next_cycle_on(ledger):
    expensive = SETTINGS.model_copy(update={"prices": PriceSettings(per_gpu_hour={"*": 20.0})})
    record(
        ledger,
        *cycles([(allocation(0), WORKING)], [0, 6]),
        *cycles([(allocation(0), WORKING)], [12], settings=expensive),
    )
    assert hourly(ledger.engine)[0]["active_cost"] == 200_000 + 2_000_000


def test_labels_of_pods_are_recorded_under_their_names_and_the_last_value_counts(database_url):
    def labelled(*labels: tuple[str, str]) -> AllocationKey:
        held = allocation(0)
        return replace(held, container=replace(held.container, pod_labels=labels))

    ledger = open_ledger(database_url, labels=("cost-center", "team", "org/unit"))

    def record(minute: int, *labels: tuple[str, str]) -> str:
        ledger.record(cycle([(labelled(*labels), WORKING)], START + 60 * minute))
        (row,) = read_table(ledger.engine, "allocations")
        return row["labels"]

    assert record(0) == "{}"
    hostile = '"}\x00\u202e' + "x" * 999
    assert record(5, ("label_cost_center", "7"), ("team", "视觉"), ("app", "no")) == '{"cost-center":"7","team":"视觉"}'
    assert record(10, ("pod_label_team", "new"), ("exported_org_unit", "a")) == '{"team":"new","org/unit":"a"}'
    assert record(15) == '{"team":"new","org/unit":"a"}'  # an exporter that lost them
    assert len(json.loads(record(20, ("team", hostile)))["team"].encode()) <= 253
    assert ledger.describe()["error"] == ""
    ledger.close()
    again = open_ledger(database_url, labels=("team",))
    again.record(cycle([(labelled(("team", "z")), WORKING)], START + 60 * 25))
    assert read_table(again.engine, "allocations")[0]["labels"] == '{"team":"z"}'
    again.close()
