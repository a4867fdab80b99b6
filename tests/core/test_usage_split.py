"""The device divided: parts sum to the total, nothing unknown becomes zero."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusteward.core.node.containers import Container
from gpusteward.core.node.gpus import MPS_SERVER, Gpu, GpuAllocation, GpuProcess, GpuReading, MigIdentity, Place, Share
from gpusteward.core.node.snapshots import Snapshot
from gpusteward.core.node.usage_split import GpuSplit, Part, split_usage

pytestmark = pytest.mark.slow

GIB = 1024**3
GPU = Gpu("node-a", 0, "GPU-0", "NVIDIA A100-SXM4-80GB", memory_total_bytes=80 * GIB)
ALICE = Container("research", "alice-0", "uid-a", "main")
BOB = Container("research", "bob-0", "uid-b", "main")


def reading(**signals: float) -> GpuReading:
    return GpuReading(GPU, {"memory_total_bytes": 80 * GIB, "power_watts": 300.0, **signals})


def process(
    pid: int, container: Container | None, memory: int | None = GIB, sm: float | None = 0.0, **more
) -> GpuProcess:
    place = more.pop("place", Place.CONTAINER if container else Place.UNKNOWN)
    return GpuProcess(pid, GPU.uuid, memory_bytes=memory, sm_ratio=sm, place=place, container=container, **more)


def claim(container: Container, share: Share = Share.EXCLUSIVE) -> GpuAllocation:
    return GpuAllocation(container, GPU.uuid, share)


def split_one(reading: GpuReading, processes=(), allocations=()) -> GpuSplit:
    (one,) = split_usage(Snapshot("node-a", 1.0, (reading,), tuple(processes), tuple(allocations)))
    return one


def part(split: GpuSplit, who: Container | Place) -> Part:
    (one,) = [each for each in split.parts if who in (each.container, each.by) and (each.container or who is each.by)]
    return one


def test_a_pod_that_does_not_use_its_gpu_has_an_explicit_zero():
    own = part(split_one(reading(utilization_ratio=0.0, memory_used_bytes=4 << 20), [], [claim(ALICE)]), ALICE)
    assert (own.utilization_ratio, own.memory_bytes, own.processes) == (0.0, 0.0, 0)


def test_memory_without_a_process_is_unattributed():
    split = split_one(reading(memory_used_bytes=3 * GIB), [process(1, ALICE, 2 * GIB)], [claim(ALICE)])
    assert part(split, ALICE).memory_bytes == 2 * GIB
    assert part(split, Place.UNKNOWN).memory_bytes == GIB


@pytest.mark.parametrize("running", [[process(1, ALICE, 2 * GIB)], [process(1, ALICE, 2 * GIB), process(2, None)], []])
def test_where_the_driver_reports_no_memory_of_the_device_only_that_of_processes_is_known(running: list[GpuProcess]):
    split = split_one(GpuReading(GPU, {"utilization_ratio": 0.5}), running, [claim(ALICE)])
    assert part(split, ALICE).memory_bytes == (2 * GIB if running else 0.0)
    assert part(split, Place.UNKNOWN).memory_bytes is None
    assert split.memory_used_bytes is None


def test_an_exclusive_holder_has_the_device_utilization_without_process_utilization():
    split = split_one(reading(utilization_ratio=0.8), [process(1, ALICE, sm=None)], [claim(ALICE)])
    assert part(split, ALICE).utilization_ratio == 0.8
    assert part(split, Place.UNKNOWN).utilization_ratio == 0.0


def test_pods_on_a_shared_gpu_have_their_own_utilization():
    shared = [claim(ALICE, Share.TIME_SLICED), claim(BOB, Share.TIME_SLICED)]
    split = split_one(reading(utilization_ratio=0.9), [process(1, ALICE, sm=0.6), process(2, BOB, sm=0.2)], shared)
    assert part(split, ALICE).utilization_ratio == 0.6
    assert part(split, BOB).utilization_ratio == 0.2
    assert part(split, Place.UNKNOWN).utilization_ratio == pytest.approx(0.1)


def test_the_transcoding_of_one_pod_is_not_its_neighbours():
    shared = [claim(ALICE, Share.TIME_SLICED), claim(BOB, Share.TIME_SLICED)]
    running = [process(1, ALICE, encoder_ratio=0.6, decoder_ratio=0.2), process(2, BOB, encoder_ratio=0.0)]
    split = split_one(reading(utilization_ratio=0.0, encoder_ratio=0.8, decoder_ratio=0.1), running, shared)
    assert [each.video_ratio for each in split.parts] == [0.6, 0.0, 0.0, 0.0], "the device's sample is no mean"


def test_transcoding_of_unknown_processes_is_unattributed():
    shared = [claim(ALICE, Share.TIME_SLICED), claim(BOB, Share.TIME_SLICED)]
    running = [process(1, ALICE), process(2, BOB, encoder_ratio=0.1)]
    split = split_one(reading(encoder_ratio=0.8), running, shared)
    assert [each.video_ratio for each in split.parts] == [None, 0.1, 0.0, pytest.approx(0.7)]


@pytest.mark.parametrize(("engines", "ratio"), [(0, 0.0), (1, None), (None, None)])
def test_the_holder_of_a_mig_instance_uses_no_video_engine_where_it_has_none(engines: int | None, ratio: float | None):
    """The driver does not report the use of video engines of an instance."""
    instance = replace(GPU, mig=MigIdentity("GPU-parent", "1g.5gb", 7, 0, video_engines=engines))
    split = split_one(GpuReading(instance, {}), [process(1, ALICE, sm=None)], [claim(ALICE, Share.MIG)])
    assert part(split, ALICE).video_ratio == ratio


def test_an_exclusive_holder_has_the_transcoding_of_the_device():
    split = split_one(reading(encoder_ratio=0.0, decoder_ratio=0.4), [process(1, ALICE, sm=None)], [claim(ALICE)])
    assert [each.video_ratio for each in split.parts] == [0.4, 0.0, 0.0]
    assert part(split_one(reading(), [process(1, ALICE, sm=None)], [claim(ALICE)]), ALICE).video_ratio is None


def test_an_unattributed_process_makes_holders_without_processes_unknown_not_idle():
    shared = [claim(ALICE, Share.TIME_SLICED), claim(BOB, Share.TIME_SLICED)]
    split = split_one(reading(utilization_ratio=0.9), [process(1, None, sm=0.9)], shared)
    assert part(split, ALICE).utilization_ratio is None
    assert part(split, BOB).memory_bytes is None


def test_an_unreadable_process_list_makes_holders_unknown_not_idle():
    blind = GpuReading(GPU, {"memory_used_bytes": 9.0 * GIB}, processes_known=False)
    shared = [claim(ALICE, Share.TIME_SLICED), claim(BOB, Share.TIME_SLICED)]
    split = split_one(blind, [], shared)
    assert part(split, ALICE).memory_bytes is None
    assert part(split, Place.UNKNOWN).memory_bytes == 9 * GIB


def test_a_holder_known_by_name_alone_is_unknown_while_a_pod_known_by_uid_alone_runs():
    named = [claim(Container("research", name, "", "main"), Share.TIME_SLICED) for name in ("alice-0", "bob-0")]
    split = split_one(reading(utilization_ratio=0.9), [process(1, Container(pod_uid="uid-a"), sm=0.9)], named)
    for holder in named:
        own = part(split, holder.container)
        assert (own.utilization_ratio, own.memory_bytes, own.processes, own.power_watts) == (None, None, None, None)
    assert part(split, Container(pod_uid="uid-a")).utilization_ratio == 0.9


def test_a_holder_whose_uid_is_known_is_not_taken_for_a_pod_with_another():
    shared = [claim(ALICE, Share.TIME_SLICED), claim(BOB, Share.TIME_SLICED)]
    split = split_one(reading(utilization_ratio=0.9), [process(1, Container(pod_uid="uid-c"), sm=0.9)], shared)
    assert part(split, ALICE).utilization_ratio == 0.0


def test_an_unnamed_container_makes_other_containers_of_its_pod_unknown():
    helper = Container("research", "alice-0", "uid-a", "helper")
    shared = [claim(who, Share.TIME_SLICED) for who in (ALICE, helper, BOB)]
    unnamed = Container("research", "alice-0", "uid-a", "")
    split = split_one(reading(utilization_ratio=0.9), [process(1, unnamed, sm=0.9)], shared)
    assert [part(split, who).utilization_ratio for who in (ALICE, helper, BOB)] == [None, None, 0.0]


def test_all_parts_of_an_idle_device_are_zero():
    shared = [claim(ALICE, Share.TIME_SLICED), claim(BOB, Share.TIME_SLICED)]
    split = split_one(reading(utilization_ratio=0.0), [process(1, None, sm=None)], shared)
    assert [each.utilization_ratio for each in split.parts] == [0.0] * 4


def test_without_a_device_total_one_unknown_part_makes_the_total_unknown():
    shared = [claim(ALICE, Share.MIG), claim(BOB, Share.TIME_SLICED)]
    split = split_one(GpuReading(GPU, {}), [process(1, ALICE, sm=None)], shared)
    assert split.utilization_ratio is None
    assert part(split, BOB).utilization_ratio == 0.0


def test_the_device_total_is_at_least_the_sum_of_its_processes():
    shared = [claim(ALICE, Share.TIME_SLICED), claim(BOB, Share.TIME_SLICED)]
    split = split_one(reading(utilization_ratio=0.0), [process(1, ALICE, sm=0.5)], shared)
    assert split.utilization_ratio == 0.5
    assert part(split, ALICE).utilization_ratio == 0.5


def test_power_follows_utilization_and_idle_power_is_split_among_the_holders():
    shared = [claim(ALICE, Share.MPS), claim(BOB, Share.MPS)]
    busy = split_one(reading(utilization_ratio=0.8), [process(1, ALICE, sm=0.6), process(2, BOB, sm=0.2)], shared)
    assert part(busy, ALICE).power_watts == pytest.approx(225.0)
    idle = split_one(reading(utilization_ratio=0.0), [], shared)
    assert [each.power_watts for each in idle.parts] == [150.0, 150.0, 0.0, 0.0]
    free = split_one(reading(utilization_ratio=0.0))
    assert part(free, Place.UNKNOWN).power_watts == 300.0


def test_power_is_unknown_where_utilization_is_unknown():
    shared = [claim(ALICE, Share.MPS), claim(BOB, Share.MPS)]
    split = split_one(reading(utilization_ratio=0.8), [process(1, ALICE, sm=None), process(2, BOB, sm=0.2)], shared)
    assert part(split, ALICE).power_watts is None
    assert part(split, BOB).power_watts == pytest.approx(75.0)
    assert part(split, Place.UNKNOWN).power_watts == pytest.approx(225.0)


def test_with_unknown_utilization_power_is_unattributed_unless_there_is_one_holder():
    busy = [process(1, ALICE, sm=None), process(2, BOB, sm=None)]
    alone = split_one(reading(), busy[:1], [claim(ALICE, Share.MIG)])
    assert part(alone, ALICE).power_watts == 300.0
    for held in ([claim(ALICE), claim(BOB)], [claim(ALICE)]):
        split = split_one(reading(), busy, held)
        assert [part(split, who).power_watts for who in (ALICE, BOB, Place.UNKNOWN)] == [None, None, 300.0]


def watts_of_instances(
    *instances: tuple[str, float | None], running: tuple[GpuProcess, ...] = ()
) -> list[float | None]:
    parent = GpuReading(GPU, {"power_watts": 200.0}, is_mig_parent=True)
    readings = [
        GpuReading(
            Gpu("node-a", 0, f"MIG-{i}", "A100", mig=MigIdentity(GPU.uuid, profile, i, 0)),
            {} if busy is None else {"gr_engine_ratio": busy},
        )
        for i, (profile, busy) in enumerate(instances)
    ]
    return [each.power_watts for each in split_usage(Snapshot("node-a", 1.0, (parent, *readings), running))]


def test_a_mig_devices_power_is_split_over_its_instances_by_activity():
    assert watts_of_instances(("1g.10gb", 1.0), ("3g.40gb", 1.0), ("1g.10gb", 0.0)) == [50.0, 150.0, 0.0]
    assert watts_of_instances(("1g.10gb", 1.0), ("3g.40gb", 1.0), ("1g.10gb", None)) == [50.0, 150.0, 0.0]


def test_power_is_split_by_slices_if_an_activity_is_unknown():
    running = (GpuProcess(1, "MIG-1", place=Place.CONTAINER, container=ALICE),)
    assert watts_of_instances(("1g.10gb", 1.0), ("3g.40gb", None), running=running) == [50.0, 150.0]
    assert watts_of_instances(("1c.3g.40gb", None), ("3c.3g.40gb", None), running=running) == [50.0, 150.0]


@pytest.mark.parametrize(
    ("running", "held", "used", "expected"),
    [
        ([], [claim(ALICE)], 0, False),
        ([process(1, ALICE, 40 * GIB, 0.5)], [claim(ALICE)], 40 * GIB, False),
        ([process(1, BOB, GIB, 0.3)], [claim(ALICE)], GIB, True),
        ([process(1, BOB, 2 * GIB)], [claim(ALICE)], 2 * GIB, True),
        ([process(1, BOB, GIB)], [claim(ALICE)], GIB, False),
        ([process(1, BOB, GIB, encoder_ratio=0.2)], [claim(ALICE)], GIB, True),
        ([process(1, None, GIB, 0.3, place=Place.HOST)], [claim(ALICE)], GIB, True),
        ([process(1, None, 80 << 20, place=Place.HOST)], [claim(ALICE)], 80 << 20, False),
        ([process(1, None, 80 << 20, place=Place.HOST)], [claim(ALICE)], 69 * GIB, True),
        ([process(1, ALICE, GIB)], [claim(ALICE)], 69 * GIB, False),  # it may have more than the driver says
        ([process(1, None, GIB, 0.3)], [claim(ALICE)], GIB, True),
        ([process(1, BOB, 2 * GIB, 0.3)], [claim(who, Share.TIME_SLICED) for who in (ALICE, BOB)], 2 * GIB, False),
        ([process(1, BOB, 2 * GIB, 0.3)], [], 2 * GIB, True),
        ([process(1, BOB, 2 * GIB, 0.3, name=MPS_SERVER)], [claim(ALICE, Share.MPS)], 2 * GIB, False),
    ],
    ids=[
        *("nobody", "holder", "works", "loaded", "small", "video", "host", "display", "rest", "rest-of-holder"),
        *("unattributed", "other-holder", "free", "mps-server"),
    ],
)
def test_use_by_others_than_the_holders_is_told_from_theirs(
    running: list[GpuProcess], held: list[GpuAllocation], used: int, *, expected: bool
):
    signals = reading(utilization_ratio=sum(each.sm_ratio or 0 for each in running), memory_used_bytes=used)
    assert split_one(signals, running, held).is_used_outside is expected


def test_a_lost_gpu_is_not_divided():
    assert split_usage(Snapshot("node-a", 1.0, (GpuReading(GPU, lost=True),))) == ()


maybe_ratio = st.none() | st.floats(0, 1)
maybe_bytes = st.none() | st.integers(0, 100 * GIB)
containers = st.sampled_from([ALICE, BOB, None])
processes = st.lists(
    st.builds(
        lambda pid, who, memory, sm, host: process(
            pid, who, memory, sm, **({} if who or not host else {"place": Place.HOST})
        ),
        st.integers(1, 99),
        containers,
        maybe_bytes,
        maybe_ratio,
        st.booleans(),
    ),
    max_size=12,
)
claims = st.lists(
    st.builds(claim, st.sampled_from([ALICE, BOB]), st.sampled_from(list(Share))),
    max_size=2,
    unique_by=lambda a: a.container,
)
readings = st.builds(
    lambda used, busy, known: GpuReading(
        GPU,
        {
            name: value
            for name, value in {"memory_used_bytes": used, "utilization_ratio": busy, "power_watts": 250.0}.items()
            if value is not None
        },
        processes_known=known,
    ),
    st.none() | st.integers(0, 80 * GIB),
    maybe_ratio,
    st.booleans(),
)


@given(readings, processes, claims)
def test_the_parts_always_sum_to_the_device(seen, running, held):
    split = split_one(seen, running, held)
    for total, parts in (
        (split.utilization_ratio, [each.utilization_ratio for each in split.parts]),
        (split.memory_used_bytes, [each.memory_bytes for each in split.parts]),
        (split.power_watts, [each.power_watts for each in split.parts]),
    ):
        if total is not None:
            assert math.isclose(sum(value or 0.0 for value in parts), total, rel_tol=1e-9, abs_tol=1e-9)
        assert all(value is None or value >= 0 for value in parts)


@given(readings, processes, claims)
def test_the_total_is_never_less_than_measured_nor_more_than_the_device_has(seen, running, held):
    split = split_one(seen, running, held)
    assert split.utilization_ratio is None or seen.signals.get("utilization_ratio", 0) <= split.utilization_ratio <= 1
    assert split.memory_used_bytes is None or split.memory_used_bytes <= 80 * GIB
