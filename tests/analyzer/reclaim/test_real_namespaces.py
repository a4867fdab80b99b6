"""`reclaim.namespaces`: a limit of the program and, with the chart's Roles, of the API server; on a real control plane.

Rights are what the chart renders, for an account of its own.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusteward.analyzer.reclaim.execution.journal import ActionState, ReclaimError
from gpusteward.analyzer.reclaim.kinds.objects import DELETION_COST
from gpusteward.analyzer.reclaim.plan import Outcome
from gpusteward.analyzer.reclaim.policies.policy import ReclaimAction
from gpusteward.core.node.containers import WorkloadKey
from gpusteward.kubernetes.writes import ApiWriter, ForbiddenError
from tests.analyzer.reclaim.test_real_prohibitions import expect_nothing, read_replicas, start
from tests.analyzer.reclaim.world import World, pool_policy, suspend_policy
from tests.deploy.helm import CHART, Helm
from tests.kubernetes.cluster import Account, Cluster, Json, path_of, pod, wait_for

pytestmark = pytest.mark.slow


class Limited(World):
    """With `reclaim.namespaces` in settings and rights; at first the one of the workloads."""

    def __init__(self, kubernetes: Cluster, folder: Path, helm: Helm) -> None:
        super().__init__(kubernetes, folder)
        self._helm = helm
        self.granted: list[Json] = []
        self.limit_to(self.namespace)

    def limit_to(self, *namespaces: str) -> None:
        """What `helm upgrade` does: roles that are not in the release any more are deleted."""
        values = {"reclaim": {"mode": "enforce", "rights": True, "namespaces": list(namespaces)}}
        rendered = self._helm.template(CHART, values, "--namespace", self.own)
        kinds = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
        granted = [each for each in rendered if each["kind"] in kinds]
        self.kubernetes.apply(*granted)
        kept = {path_of(each) for each in granted}
        for each in self.granted:
            if path_of(each) not in kept:
                self.kubernetes.delete(each)
        self.granted = granted
        self.account = self.kubernetes.use_account(self.own, "gpusteward-analyzer")
        self.use_settings(*namespaces)

    def use_settings(self, *namespaces: str) -> None:
        """Without a change of the rights."""
        reclaim = self.settings.reclaim.model_copy(update={"namespaces": list(namespaces)})
        self.settings = self.settings.model_copy(update={"reclaim": reclaim})
        self.start()

    def list_refused(self) -> list[tuple[str, str]]:
        """What the API server has denied the analyzer."""
        events = self.kubernetes.read_audit(self.account.user)
        return [(each["verb"], each["requestURI"]) for each in events if each["responseStatus"]["code"] == 403]


@pytest.fixture
def limited(kubernetes: Cluster, tmp_path: Path, helm: Helm) -> Iterator[Limited]:
    world = Limited(kubernetes, tmp_path, helm)
    yield world
    for each in world.granted:
        kubernetes.delete(each)
    world.close()


def connect(kubernetes: Cluster, account: Account) -> ApiWriter:
    api = ApiWriter.from_cluster(kubernetes.environ, account=account.folder, user_agent="gpusteward-analyzer")
    assert isinstance(api, ApiWriter)
    return api


def test_never_outside_of_the_namespaces_of_the_setting_whatever_the_rights_allow(world: World, node: str) -> None:
    """Nobody is warned of what will not happen, the plan says why, and a person is refused as well."""
    item = start(world)
    reclaim = world.settings.reclaim.model_copy(update={"namespaces": ["vision", f"{world.namespace}-2"]})
    world.settings = world.settings.model_copy(update={"reclaim": reclaim})
    world.rest(minutes=65)
    expect_nothing(world, item, "namespaces")
    decision = world.decision("web")
    assert decision.outcome is Outcome.REFUSE
    [reason] = [answer.reason for answer in decision.failed if answer.guard == "namespaces"]
    assert reason.en == f"namespace {world.namespace} is not in reclaim.namespaces: a notice at most"
    assert "最多只通知" in reason.zh
    assert world.sender.kinds() == []
    with pytest.raises(ReclaimError, match=r"is not in reclaim\.namespaces"):
        world.reclaimer.suspend(WorkloadKey("Deployment", world.namespace, "web"), by="alice")
    assert world.list_writes() == []
    assert world.reclaimer.describe()["namespaces"] == ["vision", f"{world.namespace}-2"]


def test_never_a_pool_outside_of_the_namespaces_of_the_setting(world: World, node: str) -> None:
    """Its objects are not even read."""
    item = start(world, "pool", replicas=3)
    world.policies.policy = pool_policy()
    world.put_to_work([each["metadata"]["name"] for each in world.kubernetes.list_pods(world.namespace)][:1])
    reclaim = world.settings.reclaim.model_copy(update={"namespaces": ["vision"]})
    world.settings = world.settings.model_copy(update={"reclaim": reclaim})
    for _ in range(14):
        assert world.cycle() == {}
    assert world.list_writes() == []
    assert read_replicas(world, item) == 3


def test_with_the_roles_of_the_chart_it_suspends_and_restores_without_a_403(limited: Limited, node: str) -> None:
    item = start(limited, replicas=2)
    [action] = limited.run_until_acted()
    assert read_replicas(limited, item) == 0
    wait_for(lambda: limited.kubernetes.list_pods(limited.namespace) == [])
    limited.cycle()
    assert [each.state for each in limited.list_actions()] == [ActionState.VERIFIED]
    assert limited.reclaimer.restore(action.id, by="alice").state is ActionState.RESTORED
    limited.cycle()
    assert read_replicas(limited, item) == 2
    assert limited.list_refused() == []
    assert {each["objectRef"]["namespace"] for each in limited.list_writes()} == {limited.namespace}


def test_with_the_roles_of_the_chart_it_evicts_and_lowers_a_pool_without_a_403(limited: Limited, node: str) -> None:
    item = start(limited, "pool", replicas=3)
    pool = pool_policy()
    limited.policies.policy = pool
    limited.put_to_work([each["metadata"]["name"] for each in limited.kubernetes.list_pods(limited.namespace)][:1])
    for _ in range(14):
        limited.cycle()
    assert read_replicas(limited, item) == 2, limited.explain()
    limited.kubernetes.delete(item)
    wait_for(lambda: limited.kubernetes.list_pods(limited.namespace) == [])
    limited.kubernetes.apply(pod("lonely", limited.namespace, node=node, gpus=1))
    limited.kubernetes.wait_for_pods(limited.namespace, 1)
    limited.policies.policy = suspend_policy(action=ReclaimAction.EVICT)
    limited.rest(minutes=75)
    for _ in range(12):
        limited.cycle()
    assert limited.kubernetes.list_pods(limited.namespace) == [], limited.explain()
    assert limited.list_refused() == []
    written = {(each["objectRef"]["resource"], each["verb"]) for each in limited.list_writes()}
    assert {("deployments", "patch"), ("pods", "patch"), ("pods", "create"), ("events", "create")} <= written


def test_with_the_roles_of_the_chart_the_api_server_refuses_every_change_elsewhere(limited: Limited, node: str) -> None:
    """Also if the program were wrong, or somebody else had its token."""
    elsewhere = limited.kubernetes.add_namespace("team")
    other = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "namespace": elsewhere}}
    limited.kubernetes.apply(pod("one", elsewhere, node=node, gpus=1))
    api = connect(limited.kubernetes, limited.account)
    note = {"metadata": {"annotations": {DELETION_COST: "-1"}}}
    with pytest.raises(ForbiddenError, match=r"reclaim\.namespaces"):
        api.patch(path_of(other), note)
    with pytest.raises(ForbiddenError):
        api.evict(elsewhere, "one", uid="", dry_run=True)
    with pytest.raises(ForbiddenError):
        api.patch(f"/apis/apps/v1/namespaces/{elsewhere}/deployments/web", {"spec": {"replicas": 0}})
    with pytest.raises(ForbiddenError):
        api.create(f"/api/v1/namespaces/{elsewhere}/events", {"metadata": {"name": "x", "namespace": elsewhere}})
    inside = pod("two", limited.namespace, node=node, gpus=1)
    limited.kubernetes.apply(inside)
    api.patch(path_of(inside), note)


def test_what_is_suspended_in_a_namespace_that_leaves_the_setting_is_restored_as_long_as_the_rights_are_there(
    limited: Limited, node: str
) -> None:
    item = start(limited, replicas=2)
    [action] = limited.run_until_acted()
    limited.use_settings("vision")
    limited.cycle()
    assert limited.reclaimer.suspended == (1, 2.0)
    assert limited.reclaimer.restore(action.id, by="alice").state is ActionState.RESTORED
    assert read_replicas(limited, item) == 2


def test_where_its_role_has_left_as_well_the_message_has_the_command_that_undoes_it(
    limited: Limited, node: str
) -> None:
    item = start(limited, replicas=2)
    [action] = limited.run_until_acted()
    limited.limit_to(limited.kubernetes.add_namespace("team"))
    limited.cycle()
    assert limited.reclaimer.suspended == (1, 2.0), "it is still listed"
    with pytest.raises(ReclaimError, match=r"(?s)reclaim\.namespaces.*kubectl patch deployments\.apps web --namespace"):
        limited.reclaimer.restore(action.id, by="alice")
    assert read_replicas(limited, item) == 0
    limited.limit_to(limited.namespace)
    assert limited.reclaimer.restore(action.id, by="alice").state is ActionState.RESTORED
    assert read_replicas(limited, item) == 2
