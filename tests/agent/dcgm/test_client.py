"""Profiling signals from a hostengine, through the real bindings on a fake libdcgm of DCGM 3 and 4."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from gpusteward.agent.dcgm.client import Dcgm, DcgmReader, DcgmReading, list_targets
from gpusteward.agent.dcgm.session import SHARED_SECONDS
from gpusteward.agent.settings.values import parse_hostengine
from gpusteward.core.node.gpus import Gpu, GpuReading, MigIdentity
from gpusteward.core.node.signals import PROFILING
from tests.fakes.dcgm_library import DEFAULT_FIELDS, DcgmScenario, FakeDcgm
from tests.waiting import wait_until

INTERVAL = 5.0
ADDRESS = "127.0.0.1:5555"
IN_USE, PROFILING_LIBRARY_ERROR, CONNECTION_NOT_VALID = -34, -37, -21

Opener = Callable[..., Dcgm]


@pytest.fixture
def open_dcgm(fake_dcgm: FakeDcgm) -> Iterator[Opener]:
    """Creates clients of the fake; closes them afterwards."""
    opened: list[Dcgm] = []

    def open_one(scenario: DcgmScenario, address: str = ADDRESS, *, interval: float = INTERVAL) -> Dcgm:
        fake_dcgm.load(scenario)
        reader = DcgmReader(parse_hostengine(address), interval_seconds=interval, sonames=(fake_dcgm.soname,))
        opened.append(Dcgm(reader, interval_seconds=interval))
        return opened[-1]

    yield open_one
    fake_dcgm.load(DcgmScenario())  # nothing hangs any more
    for dcgm in opened:
        dcgm.close()


def gpu(uuid: str, *, index: int = 0, supports_gpm: bool = False, lost: bool = False) -> GpuReading:
    signals = {} if lost else {"power_watts": 250.0}
    return GpuReading(Gpu("n", index, uuid, "NVIDIA A100"), signals, supports_gpm=supports_gpm, lost=lost)


def instance(uuid: str, parent: str, gpu_instance_id: int, *, compute_instance_id: int = 0) -> GpuReading:
    mig = MigIdentity(parent, "1g.10gb", gpu_instance_id, compute_instance_id)
    return GpuReading(Gpu("n", 0, uuid, "NVIDIA A100", mig=mig), {"memory_used_bytes": 5.0}, supports_gpm=False)


def two_gpus() -> DcgmScenario:
    """DCGM numbers the GPUs in another order than NVML."""
    scenario = DcgmScenario()
    scenario.listen(ADDRESS)
    scenario.gpu(1, "GPU-a")
    scenario.gpu(0, "GPU-b")
    for entity, active in (("gpu 1", 0.25), ("gpu 0", 0.75)):
        scenario.value(f"{entity} 1001", active)
        scenario.value(f"{entity} 1004", active / 5)
        scenario.value(f"{entity} 1009", 2_500_000_000)
    return scenario


def partitioned() -> DcgmScenario:
    scenario = DcgmScenario()
    scenario.listen(ADDRESS)
    scenario.gpu(3, "GPU-a")
    scenario.instance(11, 3, nvml_id=7)
    scenario.instance(12, 3, nvml_id=9)
    scenario.value("gpu 3 1001", 0.5)
    scenario.value("gpu 3 1009", 1000)
    scenario.value("instance 11 1001", 0.25)
    scenario.value("instance 11 1009", 5)
    scenario.value("instance 12 1001", 0.75)
    return scenario


GPUS = (gpu("GPU-a", index=0), gpu("GPU-b", index=1))
PARTITIONED = (gpu("GPU-a"), instance("MIG-7", "GPU-a", 7), instance("MIG-9", "GPU-a", 9))


def read(dcgm: Dcgm, readings: tuple[GpuReading, ...] = GPUS, *, after: float = 0.0) -> DcgmReading:
    return dcgm.read(readings, PROFILING, now=time.time() + after)


def signals(reading: DcgmReading) -> list[dict[str, float]]:
    """The added signals of each GPU."""
    known = {"power_watts", "memory_used_bytes"}
    return [{name: value for name, value in each.signals.items() if name not in known} for each in reading.readings]


def reasons(reading: DcgmReading) -> list[str]:
    return [failure.reason for failure in reading.failures]


def test_gpus_are_matched_by_uuid_and_not_by_index(open_dcgm: Opener) -> None:
    reading = read(open_dcgm(two_gpus()))
    assert reading.failures == []
    assert signals(reading) == [
        {"gr_engine_ratio": 0.25, "tensor_ratio": 0.05, "pcie_tx_bytes_per_second": 2.5e9},
        {"gr_engine_ratio": 0.75, "tensor_ratio": 0.15, "pcie_tx_bytes_per_second": 2.5e9},
    ]
    assert all(each.signals["power_watts"] == 250.0 for each in reading.readings)


def test_mig_instances_are_matched_by_nvmls_id_and_have_only_their_own_signals(open_dcgm: Opener) -> None:
    assert signals(read(open_dcgm(partitioned()), PARTITIONED)) == [
        {"gr_engine_ratio": 0.5, "pcie_tx_bytes_per_second": 1000},
        {"gr_engine_ratio": 0.25},
        {"gr_engine_ratio": 0.75},
    ]


@pytest.mark.parametrize(("address", "interval", "expected"), [("embedded", 7.5, 7.5), (ADDRESS, 45.0, 45.0)])
def test_fields_are_watched_at_the_interval_of_the_agent(
    open_dcgm: Opener, fake_dcgm: FakeDcgm, address: str, interval: float, expected: float
) -> None:
    dcgm = open_dcgm(two_gpus(), address, interval=interval)
    read(dcgm)
    assert (fake_dcgm.watches, fake_dcgm.watch_seconds) == (2, expected)


def test_never_watches_a_hostengine_that_others_use_more_often_than_dcgm_exporter_does(
    open_dcgm: Opener, fake_dcgm: FakeDcgm
) -> None:
    """Its averages would cover less of the time for everybody."""
    dcgm = open_dcgm(two_gpus(), interval=5.0)
    read(dcgm)
    assert fake_dcgm.watch_seconds == 30.0


def test_only_wanted_and_supported_fields_are_watched(open_dcgm: Opener) -> None:
    scenario = two_gpus()
    dcgm = open_dcgm(scenario)
    reading = dcgm.read(GPUS, frozenset({"tensor_ratio", "sm_active_ratio", "power_watts"}), now=time.time())
    assert reading.failures == []
    assert signals(reading) == [{"tensor_ratio": 0.05}, {"tensor_ratio": 0.15}], "sm_active_ratio is not supported"


def test_a_cycle_costs_one_call_per_gpu(open_dcgm: Opener, fake_dcgm: FakeDcgm) -> None:
    dcgm = open_dcgm(partitioned())
    read(dcgm, PARTITIONED)
    before = fake_dcgm.calls
    read(dcgm, PARTITIONED)
    assert fake_dcgm.calls - before == 1


def test_nothing_is_asked_about_gpus_that_nvml_can_profile(open_dcgm: Opener, fake_dcgm: FakeDcgm) -> None:
    dcgm, before = open_dcgm(two_gpus()), fake_dcgm.calls
    hopper = (gpu("GPU-a", supports_gpm=True), gpu("GPU-b", lost=True))
    assert dcgm.read(hopper, PROFILING, now=time.time()).readings == hopper
    assert read(dcgm, ()).failures == ()
    assert fake_dcgm.calls == before
    assert not any(thread.name == "dcgm" for thread in threading.enumerate())


def test_values_of_nvml_are_kept(open_dcgm: Opener) -> None:
    own = GpuReading(Gpu("n", 0, "GPU-a", "NVIDIA A100"), {"tensor_ratio": 0.9}, supports_gpm=False)
    assert signals(read(open_dcgm(two_gpus()), (own,)))[0]["tensor_ratio"] == 0.9


@pytest.mark.parametrize("word", ["blank", "not_found", "not_supported", "not_permissioned", "nan", "-1", "7"])
def test_a_blank_or_impossible_ratio_is_unknown(open_dcgm: Opener, word: str) -> None:
    scenario = two_gpus()
    scenario.blank("gpu 1 1001", "double", word)
    assert signals(read(open_dcgm(scenario)))[0].keys() == {"tensor_ratio", "pcie_tx_bytes_per_second"}


@pytest.mark.parametrize("word", ["blank", "blank32", "not_found", "not_supported", "not_permissioned", "-1"])
def test_a_blank_rate_is_unknown(open_dcgm: Opener, word: str) -> None:
    scenario = two_gpus()
    scenario.blank("gpu 1 1009", "int", word)
    assert signals(read(open_dcgm(scenario)))[0].keys() == {"tensor_ratio", "gr_engine_ratio"}


def test_a_value_older_than_two_intervals_is_unknown(open_dcgm: Opener, fake_dcgm: FakeDcgm) -> None:
    scenario = two_gpus()
    dcgm = open_dcgm(scenario)
    scenario.faults = ["age 59"]
    fake_dcgm.load(scenario)
    assert signals(read(dcgm))[0]
    scenario.faults = ["age 61"]
    fake_dcgm.load(scenario)
    assert signals(read(dcgm)) == [{}, {}]


def test_a_lost_hostengine_costs_only_its_signals_and_comes_back(open_dcgm: Opener, fake_dcgm: FakeDcgm) -> None:
    scenario = two_gpus()
    dcgm = open_dcgm(scenario)
    assert signals(read(dcgm))[0]
    fake_dcgm.load(DcgmScenario())
    lost = read(dcgm)
    assert signals(lost) == [{}, {}]
    assert all(each.signals["power_watts"] == 250.0 for each in lost.readings)
    assert len(lost.failures) == 1
    assert "the DCGM hostengine 127.0.0.1:5555 cannot be used" in reasons(lost)[0]
    scenario.faults = ["generation 2"]
    fake_dcgm.load(scenario)
    assert signals(read(dcgm, after=INTERVAL))[0], "connected again"
    assert fake_dcgm.connections == 1


def test_a_hostengine_that_is_away_is_tried_after_growing_delays(open_dcgm: Opener, fake_dcgm: FakeDcgm) -> None:
    dcgm = open_dcgm(DcgmScenario())
    tried = []
    for cycle in range(40):
        before = fake_dcgm.calls
        assert len(read(dcgm, after=cycle * INTERVAL).failures) == 1, "each cycle counts as failed"
        if fake_dcgm.calls > before:
            tried.append(cycle)
    assert tried == [0, 1, 2, 3, 5, 9, 16, 28]


def test_a_restart_of_the_hostengine_between_two_cycles_is_noticed(open_dcgm: Opener, fake_dcgm: FakeDcgm) -> None:
    scenario = two_gpus()
    dcgm = open_dcgm(scenario)
    read(dcgm)
    scenario.faults = ["generation 2"]
    fake_dcgm.load(scenario)
    assert read(dcgm).failures
    assert signals(read(dcgm, after=2.0))[0]


@pytest.mark.parametrize("call", ["dcgmConnect_v2", "dcgmWatchFields", "dcgmEntitiesGetLatestValues"])
def test_a_hostengine_that_hangs_does_not_hold_up_the_cycle(open_dcgm: Opener, fake_dcgm: FakeDcgm, call: str) -> None:
    scenario = two_gpus()
    scenario.faults = [f"hang {call}"]
    dcgm = open_dcgm(scenario, interval=0.2)
    started = time.monotonic()
    assert read(dcgm).failures == ()
    again = time.monotonic()
    assert again - started < 2, "half an interval, and what a busy machine adds"
    assert reasons(read(dcgm, after=0.5)) == ["the DCGM hostengine 127.0.0.1:5555 does not respond"]
    assert time.monotonic() - again < 0.1, "it is not waited for twice"
    scenario.faults = []
    fake_dcgm.load(scenario)
    wait_until(lambda: bool(signals(read(dcgm))[0]))


def test_values_from_before_a_hang_are_valid_for_two_intervals(open_dcgm: Opener, fake_dcgm: FakeDcgm) -> None:
    scenario = two_gpus()
    dcgm = open_dcgm(scenario)
    read(dcgm)
    scenario.faults = ["hang dcgmEntitiesGetLatestValues"]
    fake_dcgm.load(scenario)
    assert signals(read(dcgm, after=SHARED_SECONDS))[0]
    assert signals(read(dcgm, after=3 * SHARED_SECONDS)) == [{}, {}]


def test_a_gpu_that_cannot_be_watched_does_not_affect_the_others(
    open_dcgm: Opener, fake_dcgm: FakeDcgm, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="gpusteward")
    scenario = two_gpus()
    scenario.faults = [f"refuse 1 {IN_USE}"]
    dcgm = open_dcgm(scenario)
    for cycle in range(200):  # a group that is left behind by each try would reach DCGM's limit of 64
        reading = read(dcgm, after=cycle * 31.0 if cycle else 0.0)
        assert [failure.gpu_uuid for failure in reading.failures] == ["GPU-a"]
    assert "One process of a node can profile, and another one probably does: dcgm-exporter" in reasons(reading)[0]
    assert "-34" in reasons(reading)[0]
    assert [record.message for record in caplog.records] == ["dcgm_opened", "dcgm_watched", "dcgm_watched"]
    scenario.faults = []
    fake_dcgm.load(scenario)
    assert read(dcgm).failures == []


@pytest.mark.parametrize("code", [IN_USE, PROFILING_LIBRARY_ERROR])
def test_where_dcgm_exporter_has_profiling_the_message_says_so_and_what_to_do(code: int, open_dcgm: Opener) -> None:
    """A second hostengine of a node gets -37 from dcgmWatchFields (NVIDIA/dcgm-exporter issue 7)."""
    scenario = two_gpus()
    scenario.faults = [f"refuse 1 {code}"]
    (reason,) = reasons(read(open_dcgm(scenario)))
    assert "another one probably does: dcgm-exporter" in reason
    assert "Remove dcgm-exporter or the DCGM_FI_PROF_* from its fields, or let both use one hostengine" in reason


def test_a_gpu_that_dcgm_cannot_profile_is_no_failure(open_dcgm: Opener) -> None:
    scenario = two_gpus()
    scenario.gpu(5, "GPU-geforce", supports=())
    reading = read(open_dcgm(scenario), (*GPUS, gpu("GPU-geforce", index=2)))
    assert (reading.failures, signals(reading)[2]) == ([], {})
    assert signals(reading)[0]


def test_a_gpu_that_the_hostengine_does_not_know_is_named(open_dcgm: Opener, fake_dcgm: FakeDcgm) -> None:
    scenario = two_gpus()
    dcgm = open_dcgm(scenario)
    readings = (*GPUS, gpu("GPU-c", index=2))
    reading = read(dcgm, readings)
    assert [(each.reason, each.gpu_uuid) for each in reading.failures] == [
        ("the DCGM hostengine does not know this GPU", "GPU-c")
    ]
    assert signals(reading)[0]
    scenario.gpu(2, "GPU-c")
    scenario.value("gpu 2 1001", 0.5)
    fake_dcgm.load(scenario)
    assert read(dcgm, readings, after=31.0).failures == []


def test_instances_of_a_new_partition_are_watched(open_dcgm: Opener, fake_dcgm: FakeDcgm) -> None:
    dcgm = open_dcgm(partitioned())
    read(dcgm, PARTITIONED)
    scenario = DcgmScenario()
    scenario.listen(ADDRESS)
    scenario.gpu(3, "GPU-a")
    fake_dcgm.load(scenario)
    changed = (gpu("GPU-a"), instance("MIG-new", "GPU-a", 7))  # the id of an instance that existed before
    reading = read(dcgm, changed)
    assert reasons(reading) == ["the DCGM hostengine does not know this MIG instance"]
    scenario.instance(20, 3, nvml_id=7)
    scenario.value("instance 20 1001", 0.125)
    scenario.faults = ["age -31"]
    fake_dcgm.load(scenario)
    assert signals(read(dcgm, changed, after=29.0)) == [{}, {}], "not tried in every cycle"
    assert signals(read(dcgm, changed, after=31.0))[1] == {"gr_engine_ratio": 0.125}
    assert fake_dcgm.watches == 1


def test_an_instance_that_the_hostengine_numbers_anew_later_than_nvml_is_found(
    open_dcgm: Opener, fake_dcgm: FakeDcgm
) -> None:
    """NVML shows the new partition, the hostengine still the old one, with an instance of the same id."""
    dcgm = open_dcgm(partitioned())
    changed = (gpu("GPU-a"), instance("MIG-new", "GPU-a", 7), instance("MIG-9", "GPU-a", 9))
    assert signals(read(dcgm, changed))[1] == {"gr_engine_ratio": 0.25}
    scenario = partitioned()
    scenario.lines = [line.replace("instance 11", "instance 20") for line in scenario.lines]
    scenario.value("instance 20 1001", 0.125)
    scenario.faults = ["age -31"]
    fake_dcgm.load(scenario)
    assert signals(read(dcgm, changed, after=31.0))[1] == {"gr_engine_ratio": 0.125}


def test_an_unknown_instance_does_not_interrupt_what_is_watched(open_dcgm: Opener, fake_dcgm: FakeDcgm) -> None:
    dcgm, readings = open_dcgm(partitioned()), (*PARTITIONED, instance("MIG-13", "GPU-a", 13))
    read(dcgm, readings)
    before = fake_dcgm.calls
    assert len(read(dcgm, readings, after=31.0).failures) == 1
    assert fake_dcgm.calls - before == 2, "the instances are looked up and the values are read, nothing is watched anew"


@pytest.mark.parametrize("more", [[], ["fail dcgmUnwatchFields -3"]], ids=["", "and-unwatched"])
def test_a_gpu_that_cannot_be_read_does_not_affect_the_others(
    open_dcgm: Opener, fake_dcgm: FakeDcgm, more: list[str]
) -> None:
    scenario = two_gpus()
    dcgm = open_dcgm(scenario)
    read(dcgm)
    scenario.faults = ["unreadable 1 -1", *more]
    fake_dcgm.load(scenario)
    for after in (0.0, INTERVAL):
        reading = read(dcgm, after=after)
        assert [failure.gpu_uuid for failure in reading.failures] == ["GPU-a"]
        assert (signals(reading)[0], signals(reading)[1]["gr_engine_ratio"]) == ({}, 0.75)
    scenario.faults = ["age -31"]
    fake_dcgm.load(scenario)
    assert signals(read(dcgm, after=31.0))[0], "watched again"


def test_a_watch_that_cannot_be_ended_costs_no_gpu(open_dcgm: Opener, fake_dcgm: FakeDcgm) -> None:
    scenario = two_gpus()
    dcgm = open_dcgm(scenario)
    read(dcgm)
    scenario.faults = [f"fail {call} -3" for call in ("dcgmUnwatchFields", "dcgmFieldGroupDestroy", "dcgmGroupDestroy")]
    fake_dcgm.load(scenario)
    reading = read(dcgm, GPUS[1:])
    assert (reading.failures, signals(reading)[0]["gr_engine_ratio"]) == ([], 0.75)


def test_an_instance_with_several_compute_instances_is_left_out() -> None:
    shared = instance("MIG-x", "GPU-a", 7), instance("MIG-y", "GPU-a", 7, compute_instance_id=1)
    targets = list_targets((gpu("GPU-a"), *shared, instance("MIG-z", "GPU-a", 9)))
    assert [target.uuid for target in targets] == ["GPU-a", "MIG-z"]


@pytest.mark.parametrize(
    ("address", "listens"), [("unix:/run/dcgm.sock", "unix:/run/dcgm.sock"), ("embedded", None), ("auto", None)]
)
def test_other_kinds_of_hostengines(open_dcgm: Opener, address: str, listens: str | None) -> None:
    scenario = two_gpus()
    scenario.lines[0] = f"listen {listens}" if listens else ""
    assert signals(read(open_dcgm(scenario, address)))[0]["gr_engine_ratio"] == 0.25


@pytest.mark.parametrize(("listens", "chosen"), [("localhost:5555", "localhost:5555"), ("elsewhere:1", "embedded")])
def test_auto_says_which_hostengine_it_chose(
    open_dcgm: Opener, caplog: pytest.LogCaptureFixture, listens: str, chosen: str
) -> None:
    scenario = two_gpus()
    scenario.lines[0] = f"listen {listens}"
    with caplog.at_level("INFO", logger="gpusteward"):
        assert read(open_dcgm(scenario, "auto")).failures == []
    opened = next(record for record in caplog.records if record.message == "dcgm_opened")
    assert str(vars(opened)["facts"]["hostengine"]) == chosen


def test_auto_does_not_compete_with_a_hostengine_of_another_version(open_dcgm: Opener) -> None:
    scenario = two_gpus()
    scenario.faults = ["fail dcgmConnect_v2 -12"]
    reading = read(open_dcgm(scenario, "auto"))
    assert "same major version" in reasons(reading)[0]
    assert signals(reading) == [{}, {}]


def test_auto_stays_with_the_hostengine_it_found(open_dcgm: Opener, fake_dcgm: FakeDcgm) -> None:
    scenario = two_gpus()
    scenario.lines[0] = "listen localhost:5555"
    dcgm = open_dcgm(scenario, "auto")
    read(dcgm)
    scenario.lines[0] = ""
    scenario.faults = ["generation 2"]
    fake_dcgm.load(scenario)
    read(dcgm)
    reading = read(dcgm, after=2.0)
    assert "localhost:5555" in reasons(reading)[0], "an embedded engine would compete with the one that comes back"


def test_a_release_closes_the_session_until_the_next_read(open_dcgm: Opener, fake_dcgm: FakeDcgm) -> None:
    dcgm = open_dcgm(two_gpus(), "embedded")
    read(dcgm)
    dcgm.close()
    assert (fake_dcgm.connections, fake_dcgm.is_initialised) == (0, False)
    assert signals(read(dcgm))[0]


def test_a_release_while_a_call_hangs_closes_the_session_when_the_call_returns(
    open_dcgm: Opener, fake_dcgm: FakeDcgm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpusteward.agent.dcgm.client.CLOSE_SECONDS", 0.1)
    scenario = two_gpus()
    dcgm = open_dcgm(scenario, "embedded", interval=0.2)
    read(dcgm)
    scenario.faults = ["hang dcgmEntitiesGetLatestValues"]
    fake_dcgm.load(scenario)
    read(dcgm)
    dcgm.close()
    assert fake_dcgm.connections == 1, "the call still hangs"
    scenario.faults = []
    fake_dcgm.load(scenario)
    wait_until(lambda: (fake_dcgm.connections, fake_dcgm.is_initialised) == (0, False))
    assert signals(read(dcgm))[0], "opened again"


@pytest.mark.parametrize(
    ("code", "advice"), [(-12, "same major version"), (-29, "CAP_SYS_ADMIN"), (CONNECTION_NOT_VALID, "host engine")]
)
def test_a_failed_call_is_explained(open_dcgm: Opener, code: int, advice: str) -> None:
    scenario = two_gpus()
    scenario.faults = [f"fail dcgmConnect_v2 {code}"]
    assert advice in reasons(read(open_dcgm(scenario)))[0]


def test_a_missing_library_is_explained() -> None:
    reader = DcgmReader(parse_hostengine("auto"), interval_seconds=5, sonames=("libdcgm.so.none",))
    failure = reader.read((), frozenset(DEFAULT_FIELDS), now=0.0).failures[0]
    assert "libdcgm.so.none was found. Install datacenter-gpu-manager" in failure.reason
