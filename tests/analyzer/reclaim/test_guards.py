"""Each guard alone, and what their answers come to. Pure."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from datetime import time as clock_time
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusteward.analyzer.judge.resumption import Chance
from gpusteward.analyzer.reclaim.cluster import PodId
from gpusteward.analyzer.reclaim.decisions.decide import decide, is_warning_due, list_objections, waits_for_pressure
from gpusteward.analyzer.reclaim.decisions.guards import GUARDS, ask_all
from gpusteward.analyzer.reclaim.decisions.host_use import HostReading, read_host_readings
from gpusteward.analyzer.reclaim.decisions.past import Sightings, find_end, select_warnings
from gpusteward.analyzer.reclaim.decisions.pressure import PendingPod, Victim, choose_victims
from gpusteward.analyzer.reclaim.decisions.workloads import (
    Counts,
    Facts,
    Pool,
    ReclaimWorkload,
    add_pods,
    count_silence,
)
from gpusteward.analyzer.reclaim.execution.changes import Inspection, describe_fields
from gpusteward.analyzer.reclaim.execution.journal import Action, ActionState, Warned
from gpusteward.analyzer.reclaim.kinds.objects import KubeObject
from gpusteward.analyzer.reclaim.permission import Mode
from gpusteward.analyzer.reclaim.plan import Asker, OtherPod, Outcome
from gpusteward.analyzer.reclaim.policies.policy import Hours, Limits, Policy, ReclaimAction
from gpusteward.analyzer.reclaim.policies.pool_rule import CAREFUL
from gpusteward.analyzer.settings.reclaim import HostSettings
from gpusteward.analyzer.sources.live_readings import HostUse
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.core.kinds import WorkloadClass
from gpusteward.core.messages import LANGUAGES, Message
from gpusteward.core.node.containers import OwnerEvidence, Workload, WorkloadKey
from gpusteward.core.verdicts import Activity, Proof, Signature, Step
from gpusteward.messages import reclaim as messages

NOW = 1_800_000_000.0  # Friday, 08:00 UTC
POLICY = Policy("test", WorkloadClass.INTERACTIVE, ReclaimAction.SUSPEND, grace_seconds=1800.0)
WARNED = (Warned(("key",), NOW - 2000, NOW - 1900),)
DUE = Facts(
    now=NOW,
    workload=Workload("Deployment", "team", "web", evidence=OwnerEvidence.READ, uid="uid"),
    activity=Activity.IDLE,
    signature=Signature.PARKED,
    highest_step=Step.RECLAIM,
    proof=Proof.INTEGRATED,
    gpus=8,
    idle_gpus=8,
    idle_since=NOW - 7200,
    coverage=1.0,
    result_at=NOW - 10,
    cycles_seen=5,
    policy=POLICY,
    warnings=WARNED,
    pods=("pod-uid",),
    inspection=Inspection(kind="Deployment", name="web", uid="uid", text="spec.replicas: 1 -> 0", pods=1),
)
OPEN = Action(
    id="id",
    workload=WorkloadKey("Deployment", "team", "web"),
    uid="uid",
    action=ReclaimAction.SUSPEND,
    mode=Mode.ENFORCE,
    state=ActionState.ACTED,
    policy="test",
    gpus=8,
    idle_since=NOW,
    created_at=NOW,
    updated_at=NOW,
    evidence={"pods": ["pod-uid"]},
)
ALL_DAY = Hours(clock_time(0), clock_time(0))
NIGHT = Hours(clock_time(22), clock_time(6))

NO = Message("no", "否")


def make_reading(*signals: tuple[float | None, ...]) -> HostReading:
    """By signal the values of each pod: cores and bytes per second."""
    pods = [PodKey("team", f"web-{number}") for number in range(len(signals[0]))]
    uses = {pod: HostUse(*values) for pod, values in zip(pods, zip(*signals, strict=True), strict=True)}
    [reading] = read_host_readings(FixedHosts(uses), [pods], at=NOW, limits=HostSettings())
    return reading


@dataclass
class FixedHosts:
    """A source of usage that knows only this."""

    uses: Mapping[PodKey, HostUse]

    def read_host_use(self, _pods: Collection[PodKey], _at: float, *, seconds: float) -> Mapping[PodKey, HostUse]:
        assert seconds == 600
        return self.uses


SAYS_NO: dict[str, tuple[dict[str, object], Outcome]] = {
    "idle": ({"activity": Activity.ACTIVE, "idle_gpus": 7}, Outcome.NOTHING),
    "policy": ({"policy": replace(POLICY, action=ReclaimAction.NOTIFY)}, Outcome.NOTHING),
    "signature": ({"signature": Signature.HUNG, "highest_step": Step.NOTICE}, Outcome.REFUSE),
    "patience": (
        {"pool": Pool(6, 4, 2), "policy": replace(POLICY, is_pool=True, keep=CAREFUL)},
        Outcome.WAIT,
    ),
    "proof": ({"proof": Proof.SAMPLED}, Outcome.REFUSE),
    "coverage": ({"coverage": 0.89}, Outcome.REFUSE),
    "owner": ({"workload": replace(DUE.workload, evidence=OwnerEvidence.DERIVED)}, Outcome.REFUSE),
    "namespaces": ({"is_left_out": True}, Outcome.REFUSE),
    "protected": ({"is_protected": True}, Outcome.REFUSE),
    "kept": ({"policy": replace(POLICY, keep_until=inf)}, Outcome.REFUSE),
    "reverted": ({"reverts": 2}, Outcome.REFUSE),
    "same_owner": ({"inspection": Inspection(uid="other", kind="Deployment", name="web")}, Outcome.REFUSE),
    "complete": (
        {"inspection": DUE.inspection and DUE.inspection._replace(incomplete=Message("no", "否"))},
        Outcome.REFUSE,
    ),
    "other_pods": (
        {"inspection": DUE.inspection and DUE.inspection._replace(other_pods=(PodId("web-head", "uid"),))},
        Outcome.REFUSE,
    ),
    "host": ({"host": make_reading((0.2, 0.4), (None, None), (1e3, None))._replace(error=NO)}, Outcome.REFUSE),
    "kind": ({"inspection": Inspection(refusal=Message("no", "否"))}, Outcome.REFUSE),
    "not_under_way": ({"open_action": OPEN}, Outcome.WAIT),
    "snoozed": ({"snoozed_until": NOW + 1}, Outcome.WAIT),
    "cool_down": ({"left_alone_until": NOW + 1}, Outcome.WAIT),
    "seen": ({"cycles_seen": 1}, Outcome.WAIT),
    "fresh": ({"result_at": NOW - 601}, Outcome.WAIT),
    "window": ({"idle_since": NOW - 3599}, Outcome.WAIT),
    "no_requests": (
        {
            "policy": replace(POLICY, no_requests_seconds=7200.0),
            "counts_silence": True,
            "silent_since": NOW - 7199,
        },
        Outcome.WAIT,
    ),
    "chance": ({"policy": replace(POLICY, highest_chance=0.3), "chance": Chance(0.31, 20, "workload")}, Outcome.WAIT),
    "quiet_hours": ({"policy": replace(POLICY, quiet_hours=ALL_DAY)}, Outcome.WAIT),
    "leader": ({"leader": Message("another one", "另一个")}, Outcome.WAIT),
    "switch": ({"switch": Message("off", "关")}, Outcome.WAIT),
    "policy_file": ({"policy_problem": Message("empty", "空")}, Outcome.WAIT),
    "warned": ({"warnings": ()}, Outcome.WARN),
    "working_hours": ({"policy": replace(POLICY, working_hours=NIGHT)}, Outcome.WAIT),
    "pressure": ({"policy": replace(POLICY, on_pressure=True)}, Outcome.WAIT),
    "budget": ({"counts": Counts(5, 0, 5)}, Outcome.WAIT),
    "pods": ({"unknown_pod": "web-1"}, Outcome.REFUSE),
    "usage": ({"is_usage_read": True, "usage": messages.NO_USAGE_SOURCE}, Outcome.WAIT),
}


def failed(facts: Facts) -> list[str]:
    return [answer.guard for answer in ask_all(facts) if answer.passed is False]


def test_it_is_due_when_every_guard_says_yes() -> None:
    decision = decide(DUE)
    assert (failed(DUE), decision.outcome) == ([], Outcome.ACT)
    assert [answer.guard for answer in decision.answers] == [guard.name for guard in GUARDS]
    assert {answer.guard for answer in decision.answers if not answer.passed} == {"host", "usage"}, (
        "asked right before the warning, and right before the write"
    )


@pytest.mark.parametrize(
    ("signals", "words"),
    [
        (((0.6, 0.4), (None, None), (0.0, 0.0)), "CPU: 1.00 cores, most of it in pod web-0; 1 core is work"),
        (((0.1, 0.1), (9e5, 1e5), (0.0, None)), "disk: 1.00 MB/s, most of it by pod web-0; 1 MB/s are work"),
        (((None, None), (None, None), (0.0, 2.5e6)), "network: 2.50 MB/s, most of it by pod web-1; 1 MB/s are work"),
    ],
)
def test_work_of_all_pods_together_on_their_hosts_refuses(signals: tuple[tuple[float | None, ...], ...], words: str):
    facts = DUE._replace(host=make_reading(*signals))
    [answer] = decide(facts).failed
    assert (answer.guard, decide(facts).outcome) == ("host", Outcome.REFUSE)
    assert answer.reason.en == f"its pods work on their hosts (means over 10 min): {words}"
    assert list_objections(ask_all(facts), Asker.OPERATOR), "also where a person asks for it"


def test_unknown_signals_of_hosts_do_not_refuse_and_are_named() -> None:
    facts = DUE._replace(host=make_reading((0.25, None), (None, None), (None, None)))
    assert decide(facts).outcome is Outcome.ACT
    [answer] = [each for each in ask_all(facts) if each.guard == "host"]
    assert answer.reason == Message(
        "its pods do not work on their hosts (means over 10 min): CPU: 0.25 cores (unknown of 1 of 2 pods); "
        "disk: unknown, no signal; network: unknown, no signal",
        "其 Pod 在主机上没有明显活动（10 分钟平均值）：CPU 0.25 核（2 个 Pod 中有 1 个未知）；磁盘：未知，没有信号；"
        "网络：未知，没有信号",
    )


def test_hosts_without_a_source_are_not_read_and_that_refuses() -> None:
    [reading] = read_host_readings(None, [[PodKey("team", "web-0")]], at=NOW, limits=HostSettings())
    assert decide(DUE._replace(host=reading)).outcome is Outcome.REFUSE


def test_every_guard_is_tried_here() -> None:
    assert set(SAYS_NO) == {guard.name for guard in GUARDS}


def test_pods_without_gpus_are_named_whether_the_policy_allows_to_stop_them_or_not() -> None:
    assert DUE.inspection is not None
    pods = tuple(PodId(f"head-{number}", f"uid-{number}") for number in range(12))
    facts = DUE._replace(inspection=DUE.inspection._replace(other_pods=pods))
    allowed = facts._replace(policy=replace(POLICY, stops_other_pods=True))
    assert (failed(facts), failed(allowed)) == (["other_pods"], [])
    for each in (facts, allowed):
        [reason] = [answer.reason.en for answer in ask_all(each) if answer.guard == "other_pods"]
        assert "12 pods without GPUs" in reason
        assert "head-0, head-1," in reason
        assert "head-9, +2" in reason


def test_pods_without_gpus_show_what_they_use_and_what_is_not_known_of_them() -> None:
    assert DUE.inspection is not None
    reading = HostReading(3, 600.0, by_pod={"head": HostUse(1.5, None, 2.5e6), "worker": HostUse(0.0, 0.0, 0.0)})
    pods = tuple(PodId(name, f"uid-{name}") for name in ("head", "worker", "driver"))
    facts = DUE._replace(inspection=DUE.inspection._replace(other_pods=pods), host=reading)
    decision = decide(facts)
    [answer] = decision.failed
    assert answer.reason == Message(
        "it would also stop 3 pods without GPUs: head (CPU: 1.50 cores; disk: unknown, no signal; network: 2.50 MB/s), "
        "worker (CPU: 0.00 cores; disk: 0.00 MB/s; network: 0.00 MB/s), driver (CPU: unknown, no signal; "
        "disk: unknown, no signal; network: unknown, no signal); policy test does not have stops_other_pods: true",
        "还会停止 3 个未占用 GPU 的 Pod：head（CPU 1.50 核；磁盘：未知，没有信号；网络 2.50 MB/s）、"
        "worker（CPU 0.00 核；磁盘 0.00 MB/s；网络 0.00 MB/s）、driver（CPU：未知，没有信号；磁盘：未知，没有信号；"
        "网络：未知，没有信号）；策略 test 未设置 stops_other_pods: true",
    )
    assert decision.other_pods == (
        OtherPod("head", "uid-head", 1.5, None, 2.5e6),
        OtherPod("worker", "uid-worker", 0.0, 0.0, 0.0),
        OtherPod("driver", "uid-driver"),
    )
    unreadable = facts._replace(host=reading._replace(error=NO))
    assert "pods without GPUs: head, worker, driver; policy" in decide(unreadable).failed[0].reason.en


@pytest.mark.parametrize(
    ("signature", "step"), [(Signature.STARTING, Step.NOTHING), (Signature.HUNG, Step.NOTICE)], ids=str
)
def test_actions_name_the_highest_step_that_explain_names(signature: Signature, step: Step) -> None:
    facts = DUE._replace(signature=signature, highest_step=step)
    [reason] = [answer.reason.en for answer in ask_all(facts) if answer.guard == "signature"]
    assert reason == f"the highest step is {step}, signature {signature}"


@pytest.mark.parametrize("guard", SAYS_NO)
def test_one_guard_alone_keeps_it_from_being_acted_on(guard: str) -> None:
    changes, outcome = SAYS_NO[guard]
    facts = DUE._replace(**changes)  # type: ignore[arg-type]
    assert failed(facts) == [guard]
    assert decide(facts).outcome is outcome
    for answer in ask_all(facts):
        assert all(answer.reason.text(language) for language in LANGUAGES)


@given(st.sets(st.sampled_from(sorted(SAYS_NO)), min_size=1))
def test_whatever_else_is_right_one_no_is_enough(guards: set[str]) -> None:
    changes = {name: value for guard in sorted(guards) for name, value in SAYS_NO[guard][0].items()}
    facts = DUE._replace(**changes)  # type: ignore[arg-type]
    assert decide(facts).outcome is not Outcome.ACT


def test_an_unknown_chance_is_not_a_low_one() -> None:
    facts = DUE._replace(policy=replace(POLICY, highest_chance=0.3), chance=Chance(None, 3, "kind"))
    assert failed(facts) == ["chance"]


@pytest.mark.parametrize(
    ("warnings", "needed", "is_due"),
    [
        ((), 1, True),
        ((Warned(("a",), NOW - 100, NOW - 90),), 1, False),
        ((Warned(("a",), NOW - 100, NOW - 90),), 2, False),  # too soon
        ((Warned(("a",), NOW - 1000, NOW - 990),), 2, True),
        ((Warned(("a",), NOW - 1000, None),), 1, False),  # not delivered yet
        ((Warned(("a",), NOW - 3700, None),), 1, True),  # never delivered: once more
    ],
)
def test_when_a_warning_is_due(warnings: tuple[Warned, ...], needed: int, is_due: bool) -> None:
    policy = replace(POLICY, warnings=needed)
    assert is_warning_due(DUE._replace(warnings=warnings, policy=policy)) == is_due


def test_limits_of_the_namespace_and_of_the_hour() -> None:
    policy = replace(POLICY, limits=Limits(5, 2, 20))
    assert failed(DUE._replace(policy=policy, counts=Counts(2, 2, 2))) == ["budget"]
    assert failed(DUE._replace(policy=policy, counts=Counts(0, 0, 20))) == ["budget"]
    assert failed(DUE._replace(policy=policy, counts=Counts(4, 1, 19))) == []


def test_a_person_may_skip_time_and_nothing_else() -> None:
    skipped = {
        name
        for name, (changes, _) in SAYS_NO.items()
        if not list_objections(ask_all(DUE._replace(**changes)), Asker.OPERATOR)  # type: ignore[arg-type]
    }
    assert skipped == {
        *("policy", "cool_down", "window", "no_requests", "chance", "quiet_hours", "warned", "working_hours"),
        *("pressure", "budget", "patience"),
    }


def test_a_pool_without_surplus_is_left_alone() -> None:
    assert failed(DUE._replace(pool=Pool(6, 4, 2, has_lasted=True))) == []
    assert decide(DUE._replace(pool=Pool(4, 4))).outcome is Outcome.NOTHING


GPU = "nvidia.com/gpu"


def victim(number: int, *, idle_hours: float, node: str = "a", gpus: int = 1, model: str = "H100") -> Victim:
    return Victim(number, NOW - idle_hours * 3600, {(node, GPU, model): gpus})


def test_the_longest_idle_that_together_let_a_pod_start_are_taken() -> None:
    victims = [victim(1, idle_hours=1), victim(2, idle_hours=9), victim(3, idle_hours=5)]
    assert choose_victims([PendingPod("p", GPU, 2, "1")], victims) == {2, 3}


def test_nothing_is_taken_if_it_does_not_suffice() -> None:
    victims = [victim(1, idle_hours=1), victim(2, idle_hours=9, node="b")]
    assert choose_victims([PendingPod("p", GPU, 2, "1")], victims) == set(), "one node must have both"
    assert choose_victims([PendingPod("p", "nvidia.com/mig-1g.10gb", 1, "1")], victims) == set()
    assert choose_victims([PendingPod("p", GPU, 1, "1", model="A100")], victims) == set()
    assert choose_victims([], victims) == set()


def test_what_is_left_of_a_victim_serves_the_next_pod() -> None:
    pods = [PendingPod("p", GPU, 2, "1"), PendingPod("q", GPU, 2, "2"), PendingPod("r", GPU, 2, "3")]
    assert choose_victims(pods, [victim(1, idle_hours=9, gpus=4), victim(2, idle_hours=1, gpus=2)]) == {1, 2}


def test_a_change_reads_as_a_sentence() -> None:
    text = describe_fields({}, {"/metadata/annotations/kubeflow-resource-stopped": "now"})
    assert text == "metadata.annotations.kubeflow-resource-stopped: (absent) -> now"
    text = describe_fields({}, {"/metadata/annotations/serving.kserve.io~1stop": "true"})
    assert text == "metadata.annotations[serving.kserve.io/stop]: (absent) -> true"


def test_ten_thousand_decisions_are_quick() -> None:
    started = time.process_time()
    for _ in range(10_000):
        decide(DUE)
    assert time.process_time() - started < 3.0


def test_only_what_could_be_taken_now_counts_for_a_pending_pod() -> None:
    """Of two victims that a pod needs together, one is still in its grace period: the other is not taken yet."""
    waiting = DUE._replace(policy=replace(POLICY, on_pressure=True))
    assert waits_for_pressure(waiting)
    assert not waits_for_pressure(waiting._replace(warnings=(Warned(("key",), NOW - 60, NOW - 60),)))
    assert not waits_for_pressure(waiting._replace(snoozed_until=NOW + 60))
    assert not waits_for_pressure(DUE)


def test_a_warning_counts_only_for_what_it_was_about() -> None:
    """The policy changed from lowering replicas to suspending all of them: people are warned again."""
    since = NOW - 7200
    warned = replace(OPEN, state=ActionState.WARNED, created_at=NOW - 2000, warnings=WARNED)
    assert select_warnings(warned, since, POLICY, DUE.pods) == WARNED
    assert find_end(warned, DUE) is None
    lowered = replace(warned, action=ReclaimAction.SCALE_TO_KEEP)
    assert select_warnings(lowered, since, POLICY, DUE.pods) == ()
    ended = find_end(lowered, DUE)
    assert ended is not None
    assert "from scale-to-keep to suspend" in ended.en
    assert find_end(warned, None) is not None


def test_a_warning_counts_only_for_the_pods_that_it_was_about() -> None:
    """A pod that is created again under the same name is another one. One that is gone changes nothing."""
    warned = replace(OPEN, created_at=NOW - 2000, warnings=WARNED, evidence={"pods": ["pod-uid", "gone"]})
    assert select_warnings(warned, NOW - 7200, POLICY, ["pod-uid"]) == WARNED
    assert select_warnings(warned, NOW - 7200, POLICY, ["pod-uid", "new"]) == ()
    assert find_end(warned, DUE) is None
    ended = find_end(warned, DUE._replace(pods=("new",)))
    assert ended is not None
    assert "others by now" in ended.en


def test_idle_never_begins_before_the_newest_pod_does() -> None:
    def started(at: str) -> KubeObject:
        return KubeObject("v1", "Pod", {"metadata": {"name": at, "uid": at}, "status": {"startTime": at}})

    old, new = started("2027-01-15T05:00:00Z"), started("2027-01-15T07:30:00Z")
    begun = datetime(2027, 1, 15, 6, tzinfo=UTC).timestamp()
    facts = DUE._replace(idle_since=begun)
    assert add_pods(facts, [old]).idle_since == begun
    assert add_pods(facts, [old, new]).idle_since == begun + 5400
    assert add_pods(facts, [old]).unknown_pod == ""
    unstarted = KubeObject("v1", "Pod", {"metadata": {"name": "b", "uid": "b"}})
    assert add_pods(facts, [old, unstarted]).unknown_pod == "b"


def test_new_pods_are_seen_for_the_first_time() -> None:
    key, seen = WorkloadKey("StatefulSet", "team", "lab"), Sightings()
    for at, pods in enumerate([{"a"}, {"a"}, {"a", "b"}, {"a", "b"}, {"b"}, {"c"}]):
        verdict = DUE._replace(proof=Proof.SAMPLED if at == 0 else Proof.INTEGRATED)
        names = tuple(PodId(pod, "") for pod in pods)
        seen.update([ReclaimWorkload(0, key, (), (), names, verdict, verdict)], at=float(at))
        assert (seen.find(key).cycles, seen.find(key).sampled_at) == ([1, 2, 1, 2, 3, 1][at], 0.0)


def test_a_limit_that_is_reached_says_until_when_and_never_due_now() -> None:
    limits = replace(POLICY.limits, per_hour=2)
    waiting = DUE._replace(policy=replace(POLICY, limits=limits))
    ends = (NOW + 600, NOW + 1200, NOW + 3000)
    decision = decide(waiting._replace(counts=Counts(0, 0, 3, ends)))
    assert (decision.outcome, decision.due_at) == (Outcome.WAIT, NOW + 1200), "then one action of the last hour is left"
    assert decide(waiting._replace(counts=Counts(2, 0, 5, ends))).due_at is None, "it depends on others of this cycle"


HOUR = 3600.0
MONDAY = Hours(clock_time(9), clock_time(18), "Asia/Shanghai", frozenset({0}))


@pytest.mark.parametrize(
    ("working", "quiet", "due"),
    [
        (NIGHT, None, NOW + 14 * HOUR),  # 22:00
        (Hours(clock_time(7), clock_time(9)), None, NOW),
        (Hours(clock_time(9), clock_time(8)), None, NOW + HOUR),
        (MONDAY, None, NOW + (3 * 24 - 7) * HOUR),  # 01:00 UTC
        (None, Hours(clock_time(7), clock_time(9, 30)), NOW + 1.5 * HOUR),
        (None, ALL_DAY, None),
        (NIGHT, Hours(clock_time(20), clock_time(23)), NOW + 15 * HOUR),
        (Hours(clock_time(9), clock_time(10)), Hours(clock_time(8, 30), clock_time(11)), None),
    ],
)
def test_where_hours_hold_an_action_back_it_is_due_when_they_end(
    working: Hours | None, quiet: Hours | None, due: float | None
) -> None:
    """It is warned about, and its grace period is over. Friday, 08:00 UTC."""
    decision = decide(DUE._replace(policy=replace(POLICY, working_hours=working, quiet_hours=quiet)))
    assert decision.due_at == due
    assert decision.outcome is (Outcome.ACT if due == NOW else Outcome.WAIT)


def test_an_action_whose_grace_period_ends_out_of_hours_is_due_when_they_begin() -> None:
    until_nine = replace(POLICY, working_hours=Hours(clock_time(7), clock_time(9)), grace_seconds=2 * HOUR)
    assert decide(DUE._replace(policy=until_nine)).due_at == NOW + 23 * HOUR


def test_a_warning_that_waits_for_the_end_of_quiet_hours_begins_the_grace_period_then() -> None:
    quiet = replace(POLICY, quiet_hours=Hours(clock_time(7), clock_time(9)))
    decision = decide(DUE._replace(policy=quiet, warnings=()))
    assert (decision.outcome, decision.due_at) == (Outcome.WAIT, NOW + HOUR + POLICY.grace_seconds)


@pytest.mark.parametrize("guard", ["chance", "pressure", "usage", "leader", "switch"])
def test_what_waits_for_an_unknown_time_is_never_due_now(guard: str) -> None:
    change, _ = SAYS_NO[guard]
    decision = decide(DUE._replace(**change))
    assert decision.due_at is None
    assert guard in [answer.guard for answer in decision.failed]


SILENT = DUE._replace(
    signature=Signature.NO_REQUESTS,
    highest_step=Step.NOTICE,
    step_by_silence=Step.RECLAIM,
    silent_since=NOW - 10_000,
    idle_since=NOW - 100,
)
CONSENT = replace(POLICY, no_requests_seconds=7200.0, window_seconds=90_000.0)


def test_silence_counts_only_where_the_policy_says_so() -> None:
    assert count_silence(SILENT, POLICY) == (SILENT, POLICY)
    facts, policy = count_silence(SILENT, CONSENT)
    assert (facts.idle_since, facts.highest_step, policy.window_seconds) == (NOW - 10_000, Step.RECLAIM, 7200)
    assert failed(facts._replace(policy=policy)) == []


@pytest.mark.parametrize(
    "changes",
    [{"silent_since": None}, {"step_by_silence": Step.NOTICE}, {"idle_since": None}],
    ids=["no counters", "a step that something else limits", "not idle"],
)
def test_silence_never_lifts_another_limit(changes: Mapping[str, object]) -> None:
    facts, policy = count_silence(SILENT._replace(**changes), CONSENT)  # type: ignore[arg-type]
    assert not facts.counts_silence
    assert "signature" in failed(facts._replace(policy=policy))


def test_idle_time_of_the_gpus_counts_where_it_is_over_sooner() -> None:
    facts = SILENT._replace(highest_step=Step.RECLAIM, idle_since=NOW - 9000)
    assert count_silence(facts, replace(CONSENT, window_seconds=3600.0)) == (
        facts,
        replace(CONSENT, window_seconds=3600.0),
    )


def test_before_its_policy_is_known_a_silent_workload_is_not_refused() -> None:
    unread = SILENT._replace(policy=None, inspection=None)
    assert "signature" not in failed(unread)
    assert "signature" in failed(unread._replace(silent_since=None))
    assert "signature" in failed(SILENT)
