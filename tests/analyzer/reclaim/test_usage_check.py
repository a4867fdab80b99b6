"""Usage is read once more right before an action: by every signal that the judge takes for work, and fresh."""

import time
from collections.abc import Sequence

import pytest

from gpusteward.analyzer.judge.activity import ActivityRule
from gpusteward.analyzer.reclaim.execution.usage_check import (
    READ_SECONDS,
    WRITE_SECONDS,
    UsageCheck,
    find_longest_age,
)
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.analyzer.sources.usage_source import Chart, Points, UsageSource
from gpusteward.analyzer.tables import ServerPod
from gpusteward.core.errors import SourceError
from gpusteward.core.node.containers import Container, Workload
from gpusteward.core.usages import AllocationKey, Measure

AT = 1_800_000_000.0
HELD = AllocationKey("GPU-1", "", Container("team", "pod", "uid", "main"), "node", "0", "H100", "exclusive")
OTHER = AllocationKey("GPU-2", "", Container("team", "pod", "uid", "main"), "node", "1", "H100", "exclusive")
QUIET: Points = [(AT - 60, 0.0), (AT - 30, 0.0)]


class Source:
    """Has these lines, of every GPU."""

    def __init__(self, **lines: Points) -> None:
        self.lines = {Measure[name]: points for name, points in lines.items()}
        self.others: Points | None = None  # the core of the second GPU, if it differs
        self.servers: Sequence[ServerPod] = ()

    def read_servers(self, at: float, *, seconds: float) -> Sequence[ServerPod]:
        return self.servers

    def read_work(self, allocations: Sequence[AllocationKey], at: float, *, seconds: float) -> list[Chart]:
        charts = [Chart(one, self.lines) for one in allocations]
        return charts if self.others is None else [charts[0], Chart(allocations[1], {Measure.CORE: self.others})]


def look(source: UsageSource | None, *, allocations: Sequence[AllocationKey] = (HELD,)) -> str:
    check = UsageCheck(source, allocations, verdict_at=AT - 20, rule=ActivityRule(), clock=lambda: AT)
    found = check.look().problem
    return found.en if found else ""


LWS = Workload("LeaderWorkerSet", "team", "chat", "lws-uid")
WORKER = AllocationKey("GPU-1", "", Container("team", "chat-0-1", "uid", "main", LWS), "node", "0", "H100", "exclusive")
LEADER = PodKey("team", "chat-0", "")


def look_at_servers(*servers: ServerPod, others: Sequence[PodKey] = (LEADER,)) -> str:
    """Right before an action that rests on silence."""
    source = Source(CORE=QUIET, BUSY=QUIET)
    source.servers = servers
    check = UsageCheck(
        source,
        [WORKER],
        verdict_at=AT - 20,
        rule=ActivityRule(),
        clock=lambda: AT,
        counts_silence=True,
        other_pods=others,
    )
    found = check.look().problem
    return found.en if found else ""


def server(pod: str, namespace: str = "team", *, cluster: str = "", requests: float = 0.0) -> ServerPod:
    container = Container(namespace, pod, cluster=cluster)
    return ServerPod("vLLM", container, requests=requests, tokens=0.0, is_silent=requests == 0)


def test_a_leader_without_gpus_speaks_for_its_workers() -> None:
    assert look_at_servers(server("chat-0")) == ""


@pytest.mark.parametrize(
    ("servers", "others"),
    [
        ([], [LEADER]),
        ([server("chat-0")], []),
        ([server("chat-0", "other")], [LEADER]),
        ([server("chat-0", cluster="east")], [LEADER]),
        ([server("chat-1")], [PodKey("team", "chat-1", "")]),
        ([server("chat-0", requests=1)], [LEADER]),
        ([server("chat-0"), server("chat-1", requests=1)], [LEADER, PodKey("team", "chat-1", "")]),
    ],
    ids=[
        "no metrics",
        "not of the workload",
        "namespace",
        "cluster",
        "leads another group",
        "request",
        "another leader",
    ],
)
def test_never_by_the_silence_of_a_leader_that_does_not_lead_or_is_asked(
    servers: Sequence[ServerPod], others: Sequence[PodKey]
) -> None:
    assert "chat-0-1" in look_at_servers(*servers, others=others)


def test_an_idle_gpu_is_idle() -> None:
    traffic, noise = ([(at, value) for at, _ in QUIET] for value in (500e3, 0.004))
    kernel = [(at, AT - 7200) for at, _ in QUIET]
    assert look(Source(CORE=QUIET, PCIE=traffic, DRAM=noise, OUTSIDE=QUIET, LAST_KERNEL=kernel)) == ""


@pytest.mark.parametrize(
    ("measure", "value"),
    [
        *[("CORE", 0.01), ("ENCODER", 0.8), ("DECODER", 0.6), ("VIDEO", 0.2), ("BUSY", 0.001), ("ENGINE", 0.1)],
        *[("SM_ACTIVE", 0.01), ("PCIE", 300e6), ("NVLINK", 2e9), ("DRAM", 0.2), ("ENCODER", 80.0)],
    ],
)
def test_any_signal_that_the_judge_knows_is_work(measure: str, value: float) -> None:
    assert "GPU-1" in look(Source(**{"CORE": QUIET, measure: [(AT - 60, value), (AT - 30, 0.0)]}))


def test_a_ratio_above_what_can_be_is_no_idleness_and_a_value_that_dcgm_does_not_have_is_nothing() -> None:
    blank = 2147483632 / 100  # DCGM_INT32_BLANK, read as a percentage
    assert "work was seen" in look(Source(CORE=QUIET, ENGINE=[(AT - 60, 1.7), (AT - 30, 0.0)]))
    assert look(Source(CORE=QUIET, ENGINE=[(at, blank) for at, _ in QUIET])) == ""


def test_a_kernel_since_the_verdict_is_work_that_no_gauge_shows() -> None:
    assert "work was seen" in look(Source(CORE=QUIET, LAST_KERNEL=[(AT - 60, AT - 7200), (AT - 30, AT - 35)]))


def test_use_by_somebody_else_is_no_idleness() -> None:
    problem = look(Source(CORE=QUIET, BUSY=QUIET, OUTSIDE=[(AT - 60, 0.0), (AT - 30, 0.5)]))
    assert "GPU-1" in problem
    assert "somebody who does not hold it" in problem


STOPPED: Points = [(AT - 200, 0.0), (AT - 170, 0.0)]


@pytest.mark.parametrize(
    ("measure", "name"),
    [
        *[("ENGINE", "Engine activity"), ("BUSY", "Busy time"), ("LAST_KERNEL", "last kernel")],
        *[("ENCODER", "Encoder"), ("DECODER", "Decoder"), ("VIDEO", "video engines"), ("OUTSIDE", "Use by others")],
    ],
)
def test_never_on_a_signal_that_has_stopped_while_the_gauge_goes_on(measure: str, name: str) -> None:
    """Profiling is paused while somebody uses Nsight; an agent is down beside dcgm-exporter."""
    problem = look(Source(CORE=QUIET, **{measure: STOPPED}))
    assert "waits for a fresh sample" in problem
    assert "is 170 s old" in problem
    assert name in problem


def test_a_single_sample_of_a_counter_says_nothing() -> None:
    assert "there is none of GPU GPU-1 of pod pod (Busy time)" in look(Source(CORE=QUIET, BUSY=[]))


def test_a_signal_that_is_always_blank_is_not_waited_for() -> None:
    assert look(Source(CORE=QUIET, NVLINK=[(at, 2.0**63) for at, _ in QUIET])) == ""


def test_never_on_samples_of_the_future() -> None:
    """The clock of what scrapes is ahead: samples that seem new are old."""
    at_times = [AT - 25, AT + 5, AT + 35]
    assert "from 35 s in the future" in look(Source(CORE=[(at, 0.0) for at in at_times]))
    assert look(Source(CORE=[(at, 0.0) for at in at_times[:2]])) == "", "clocks differ by seconds"


@pytest.mark.parametrize("points", [[], [(AT - 290, 0.0)], [(AT - 30, 1.4e14)]])
def test_without_a_recent_value_it_is_not_called_idle(points: Points) -> None:
    assert "fresh sample" in look(Source(CORE=points))


@pytest.mark.parametrize(
    ("interval", "longest"), [(5.0, 30.0), (15.0, 30.0), (20.0, 40.0), (30.0, 60.0), (60.0, 60.0), (300.0, 60.0)]
)
def test_a_sample_may_be_two_scrape_intervals_old_within_limits(interval: float, longest: float) -> None:
    times = [AT - interval * number for number in reversed(range(4))]
    assert find_longest_age(times) == longest
    for age, is_fresh in ((longest - 0.5, True), (longest + 0.5, False)):
        points = [(moment - age, 0.0) for moment in times]
        assert (look(Source(CORE=points)) == "") is is_fresh


def test_a_single_sample_says_nothing_about_the_interval() -> None:
    assert find_longest_age([AT]) == 30.0


def test_every_gpu_needs_a_fresh_sample() -> None:
    source = Source(CORE=QUIET)
    assert look(source, allocations=[HELD, OTHER]) == ""
    source.others = [(AT - 400, 0.0), (AT - 370, 0.0)]
    assert "GPU-2" in look(source, allocations=[HELD, OTHER])


def test_a_source_that_cannot_be_read_proves_nothing() -> None:
    class Broken(Source):
        def read_work(self, allocations: Sequence[AllocationKey], at: float, *, seconds: float) -> list[Chart]:
            raise SourceError("down")

    assert "down" in look(Broken())
    assert "no source" in look(None)


def test_a_slow_answer_proves_nothing_and_its_samples_have_aged(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that hangs for 40 s answers with what it had before."""
    moments = iter([1000.0, 1000.0 + 40.0, 1000.0, 1000.0 + 5.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(moments))
    assert "is 70 s old" in look(Source(CORE=QUIET))
    assert "in 5 s; 4 s are allowed" in look(Source(CORE=[(AT - 30, 0.0), (AT - 5, 0.0)]))


def test_the_write_follows_within_seconds_of_the_first_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers about a thousand GPUs arrive one after the other: the time runs from the question."""
    moments = iter([1000.0, 1003.5])
    monkeypatch.setattr(time, "monotonic", lambda: next(moments))
    check = UsageCheck(Source(CORE=QUIET), [HELD], verdict_at=AT, rule=ActivityRule(), clock=lambda: AT)
    checked = check.look()
    assert checked.problem is None
    assert checked.write_before == 1005.0
    assert READ_SECONDS < WRITE_SECONDS, "some time is left to send it"
