"""What requests of inference servers forbid, and what their silence allows, on a real control plane."""

import pytest

from gpusteward.analyzer.reclaim.execution.journal import ActionState
from gpusteward.analyzer.reclaim.policies.file import parse_policies
from gpusteward.analyzer.reclaim.policies.resolve import WorkloadMetadata, resolve_policy
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.core.verdicts import Signature
from tests.analyzer.judge.test_requests import blips, served
from tests.analyzer.reclaim.custom_kinds import create, custom, define, reference_to
from tests.analyzer.reclaim.test_real_prohibitions import expect_nothing, read_replicas, start
from tests.analyzer.reclaim.world import START, World, suspend_policy
from tests.analyzer.usage_tables import resting
from tests.kubernetes.cluster import Json, path_of, pod

pytestmark = pytest.mark.slow


def test_a_server_that_nobody_asks_is_suspended(world: World, node: str) -> None:
    item = start(world)
    world.other_row = resting() | served()
    [action] = world.run_until_acted()
    assert action.state is ActionState.ACTED
    assert action.evidence["signature"] == Signature.NO_REQUESTS
    assert read_replicas(world, item) == 0


def test_never_while_its_server_has_requests_however_still_its_gpus_are(world: World, node: str) -> None:
    item = start(world)
    world.other_row = resting() | served(2)
    world.rest(minutes=300)
    expect_nothing(world, item, "signature")


def test_never_by_silence_of_the_counters_alone(world: World, node: str) -> None:
    """The GPU works in less than 1 % of the time: nobody has said that this is enough."""
    item = start(world)
    world.other_row = blips() | served()
    world.rest(minutes=300)
    expect_nothing(world, item, "signature")


def test_never_counts_idle_time_in_which_the_gpu_worked(world: World, node: str) -> None:
    """Five hours of health checks, then none: the window begins after the last one."""
    item = start(world)
    world.other_row = blips() | served()
    world.rest(minutes=300)
    world.other_row = resting() | served()
    world.rest(minutes=40)
    expect_nothing(world, item, "window", cycles=3)
    world.rest(minutes=20)
    for _ in range(10):
        world.cycle()
    assert read_replicas(world, item) == 0, world.explain()


NIGHT = 7200.0
"""How long without requests the policy asks for."""


def consent(world: World, *, window_seconds: float = 90_000.0) -> None:
    """To silence instead of a window that is much longer."""
    world.policies.policy = suspend_policy(no_requests_seconds=NIGHT, window_seconds=window_seconds)
    world.other_row, world.source.busy, world.source.silent = blips() | served(), 0.003, True


def run(world: World, cycles: int = 14) -> None:
    for _ in range(cycles):
        world.cycle()


def test_with_consent_silence_stands_for_idle_time(world: World, node: str) -> None:
    item = start(world)
    consent(world)
    world.rest(minutes=60)
    run(world, 3)
    assert world.list_failed("web") == ["window", "no_requests", "warned"], world.explain()
    world.rest(minutes=60)
    run(world)
    assert read_replicas(world, item) == 0, world.explain()
    [action] = world.list_actions(ActionState.ACTED, ActionState.VERIFIED)
    [answer] = [each for each in action.evidence["guards"] if each["guard"] == "no_requests"]
    assert "no request for" in str(answer["reason"])


def test_never_with_consent_but_without_counters(world: World, node: str) -> None:
    """The GPU is idle, no server says anything: the window of the policy holds, and the plan says why."""
    item = start(world)
    consent(world)
    world.other_row, world.source.busy = resting(), None
    world.rest(minutes=300)
    expect_nothing(world, item, "window")
    answers = {each.guard: each.reason.en for each in world.decision("web").answers}
    assert "does nothing" in answers["no_requests"]


def test_never_with_consent_where_the_gpu_works_more_than_health_checks(world: World, node: str) -> None:
    item = start(world)
    consent(world)
    world.other_row = blips(0.02) | served()
    world.rest(minutes=300)
    for _ in range(12):
        world.cycle()
    assert world.list_writes() == []
    assert read_replicas(world, item) == 1


def test_never_with_consent_while_silence_is_younger_than_the_policy_asks(world: World, node: str) -> None:
    item = start(world)
    consent(world)
    world.rest(minutes=300)
    before, world.other_row = world.other_row, blips() | served(1)
    world.rest(minutes=5)
    world.other_row = before
    world.rest(minutes=30)
    expect_nothing(world, item, "no_requests", cycles=12)


@pytest.mark.parametrize("silent", [False, None], ids=["request", "no answer"])
def test_never_with_consent_if_servers_do_not_prove_silence_right_before(
    world: World, node: str, silent: bool | None
) -> None:
    item = start(world)
    consent(world)
    world.source.silent = silent
    world.rest(minutes=300)
    expect_nothing(world, item, "usage", cycles=14)


def test_never_with_consent_if_the_gpu_works_more_right_before(world: World, node: str) -> None:
    item = start(world)
    consent(world)
    world.source.busy = 0.05
    world.rest(minutes=300)
    expect_nothing(world, item, "usage", cycles=14)


def start_led(world: World, node: str) -> Json:
    """A LeaderWorkerSet whose leader needs no GPU: only the leader has metrics."""
    define(world.kubernetes, "leaderworkerset.x-k8s.io", "LeaderWorkerSet")
    version = "leaderworkerset.x-k8s.io/v1"
    item = create(world.kubernetes, custom(version, "LeaderWorkerSet", "chat", world.namespace, {"replicas": 1}))
    owned = [reference_to(item)]
    for name, gpus in (("chat-0", 0), ("chat-0-1", 1)):
        world.kubernetes.apply(pod(name, world.namespace, node=node, gpus=gpus, ownerReferences=owned))
    world.kubernetes.wait_for_pods(world.namespace, 2)
    world.source.servers = ["chat-0"]
    return item


def test_with_consent_the_silence_of_a_leader_without_gpus_counts(world: World, node: str) -> None:
    item = start_led(world, node)
    consent(world)
    world.policies.policy = suspend_policy(no_requests_seconds=NIGHT, window_seconds=90_000.0, stops_other_pods=True)
    world.rest(minutes=130)
    while not (acted := world.list_actions(ActionState.ACTED)) and world.now < START + 6 * 3600:
        world.cycle()
    assert [each.evidence["signature"] for each in acted] == [Signature.NO_REQUESTS], world.explain()
    assert world.kubernetes.request("GET", path_of(item))["spec"]["replicas"] == 0


def test_never_with_consent_by_a_leader_that_is_not_of_the_workload(world: World, node: str) -> None:
    item = start_led(world, node)
    consent(world)
    world.policies.policy = suspend_policy(no_requests_seconds=NIGHT, window_seconds=90_000.0, stops_other_pods=True)
    world.source.servers = ["other-0"]
    world.rest(minutes=130)
    expect_nothing(world, item, "usage", cycles=14)


def test_never_by_silence_if_the_owner_asks_for_a_longer_window() -> None:
    file = parse_policies(
        "policies: [{name: serving, action: suspend, window: 2h, no_requests_for: 2h}]", where="policies.yaml"
    )
    key = WorkloadKey("Deployment", "team", "web")
    plain = resolve_policy(file, WorkloadMetadata(key))
    longer = resolve_policy(file, WorkloadMetadata(key, annotations={"gpusteward.io/idle-window": "24h"}))
    assert (plain.window_seconds, plain.no_requests_seconds) == (7200, 7200)
    assert (longer.window_seconds, longer.no_requests_seconds) == (86_400, 86_400)
