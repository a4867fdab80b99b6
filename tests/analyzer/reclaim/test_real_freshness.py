"""No action rests on usage that was not read seconds before, whatever stalls meanwhile, on a real control plane.

Each test stops at the moment at which the workload is due: warned, and its grace period over.
"""

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme

from gpusteward.analyzer.reclaim.execution import executor, usage_check
from gpusteward.analyzer.reclaim.execution.journal import ActionState
from gpusteward.analyzer.reclaim.plan import Outcome
from gpusteward.analyzer.reclaim.policies.policy import Limits, ReclaimAction
from tests.analyzer.reclaim.test_real_prohibitions import read_replicas, start
from tests.analyzer.reclaim.world import World, suspend_policy
from tests.analyzer.sources.owners.test_real_owners import make_job
from tests.kubernetes.cluster import Cluster, Json, path_of, pod, wait_for

pytestmark = pytest.mark.slow


def wait_until_due(world: World, *, warnings: int = 1) -> None:
    """The next cycle acts."""
    world.work()  # a job that was never seen at work is never acted on
    world.rest(minutes=75)
    for _ in range(2):
        world.cycle()
    assert world.sender.kinds() == ["warning"] * warnings, world.explain()
    world.rest(minutes=35)


def begin_work(world: World) -> None:
    """On all GPUs of the team, from now on."""
    world.source.working |= {each["metadata"]["name"] for each in world.kubernetes.list_pods(world.namespace)}


def list_stops(world: World) -> list[str]:
    """Writes of the analyzer that stop pods."""
    return [event["requestURI"] for event in world.list_writes() if "timeout=5s" in event["requestURI"]]


def test_an_action_reads_usage_of_all_gpus_and_carries_the_time_limit_of_the_server(world: World, node: str) -> None:
    item = start(world, gpus=2)
    wait_until_due(world)
    world.cycle()
    assert read_replicas(world, item) == 0
    assert [len(pods) for pods in world.source.reads] == [2, 2], "for the plan, and right before the write"
    [stop] = list_stops(world)
    assert "/deployments/web?" in stop


@pytest.mark.parametrize(("interval", "age"), [(15.0, 31.0), (30.0, 61.0), (120.0, 61.0), (30.0, 290.0)])
def test_never_on_a_sample_that_is_not_fresh(world: World, node: str, interval: float, age: float) -> None:
    """A constant lag above 60 s: nothing is ever done, and the plan says so."""
    item = start(world)
    world.source.step_seconds, world.source.age_seconds = interval, age
    wait_until_due(world)
    for _ in range(3):
        assert world.cycle() == {"web": Outcome.WAIT}
        assert world.list_failed("web") == ["usage"]
        [answer] = world.decision("web").failed
        assert "waits for a fresh sample" in answer.reason.en
        assert f"is {age:.0f} s old" in answer.reason.en
    assert read_replicas(world, item) == 1
    assert world.list_writes() == []
    world.source.age_seconds = 12.0
    world.cycle()
    assert read_replicas(world, item) == 0


@pytest.mark.parametrize("limits", [Limits(per_cycle=1), Limits(per_namespace=1), Limits(per_cycle=2)])
def test_never_keeps_others_from_their_turn_while_it_is_held_back(world: World, node: str, limits: Limits) -> None:
    """Held back in every cycle, the workloads that are idle for the longest time do not use up the limits for ever."""
    held = [start(world, name) for name in ("a", "b")]
    other = start(world, "c")
    names = [each["metadata"]["name"] for each in world.kubernetes.list_pods(world.namespace)]
    world.source.working |= {name for name in names if not name.startswith("c-")}
    world.policies.policy = suspend_policy(limits=limits)
    world.put_to_work([name for name in names if name.startswith("c-")])  # idle later than the others
    wait_until_due(world, warnings=2)
    world.rows.clear()
    world.rest(minutes=75)
    for _ in range(12):
        world.cycle()
    assert read_replicas(world, other) == 0, world.explain()
    assert [read_replicas(world, item) for item in held] == [1, 1]
    world.source.working.clear()
    for _ in range(2):
        world.cycle()
    assert [read_replicas(world, item) for item in held] == [0, 0], world.explain()


def test_a_person_is_told_why_it_cannot_be_suspended_now(world: World, node: str) -> None:
    start(world)
    wait_until_due(world)
    world.source.age_seconds = 100.0
    key = world.judge().workloads.keys[0]
    world.cycle()
    with pytest.raises(Exception, match="waits for a fresh sample"):
        world.reclaimer.suspend(key, by="alice")


def test_never_on_work_that_began_after_the_verdict(world: World, node: str) -> None:
    item = start(world)
    wait_until_due(world)
    begin_work(world)
    world.cycle()
    assert "work was seen" in world.decision("web").failed[0].reason.en
    assert read_replicas(world, item) == 1


Stall = Callable[[World, Callable[[], None]], None]


def stall_dry_run(world: World, stalled: Callable[[], None]) -> None:
    before = world.cluster.patch

    def patch(one: Any, fields: Any, *, dry_run: bool = False, **others: Any) -> Any:
        found = before(one, fields, dry_run=dry_run, **others)
        if dry_run:
            stalled()
        return found

    world.cluster.patch = patch  # type: ignore[method-assign]


def stall_database(world: World, stalled: Callable[[], None]) -> None:
    before = world.journal.move

    def move(action: Any, state: ActionState, **others: Any) -> Any:
        moved = before(action, state, **others)
        if state is ActionState.ACTING:
            stalled()
        return moved

    world.journal.move = move  # type: ignore[method-assign]


def stall_lease(world: World, stalled: Callable[[], None]) -> None:
    before = world.lease.renew

    def renew() -> bool:
        is_held = before()
        if world.list_actions(ActionState.ACTING):
            stalled()
        return is_held

    world.lease.renew = renew  # type: ignore[method-assign]


@pytest.mark.parametrize("stall", [stall_dry_run, stall_database, stall_lease])
def test_never_on_work_that_began_while_a_database_or_the_api_server_stalled(
    world: World, node: str, stall: Stall
) -> None:
    """Whatever can block comes before the last look at usage: PostgreSQL that hung for 55 s right before the write cost
    an owner the work that had begun meanwhile."""
    item = start(world)
    wait_until_due(world)
    stalls: list[float] = []

    def stalled() -> None:
        stalls.append(world.now)
        begin_work(world)

    stall(world, stalled)
    world.cycle()
    assert stalls
    assert read_replicas(world, item) == 1
    assert list_stops(world) == []
    [action] = world.list_actions()
    assert action.state is ActionState.WARNED
    assert "work was seen" in action.steps[-1].note.en


@pytest.mark.parametrize("stall", [stall_dry_run, stall_database, stall_lease])
def test_never_on_a_snooze_or_a_policy_that_was_read_before_a_stall(
    world: World, node: str, stall: Stall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner answers the warning while a database hangs: pods, snoozes and policies are as old as the stall."""
    item = start(world)
    wait_until_due(world)
    monkeypatch.setattr(executor, "FACTS_SECONDS", 3.0)
    stalls = iter([3.1])
    stall(world, lambda: time.sleep(next(stalls, 0.0)))
    world.cycle()
    assert (read_replicas(world, item), list_stops(world)) == (1, [])
    [action] = world.list_actions()
    assert action.state is ActionState.WARNED
    assert "pods, snoozes and policies were read" in action.steps[-1].note.en
    world.cycle()
    assert read_replicas(world, item) == 0, "the next cycle reads them again"


def test_never_when_the_engine_answers_too_late(world: World, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that begins while the engine hangs is not in its answer."""
    item = start(world)
    wait_until_due(world)
    monkeypatch.setattr(usage_check, "READ_SECONDS", 0.2)
    world.source.on_read = lambda: time.sleep(0.4)
    world.cycle()
    assert "usage was read again in" in world.decision("web").failed[0].reason.en
    assert (read_replicas(world, item), world.list_writes()) == (1, [])


def test_never_when_the_lease_ran_out_while_usage_was_read(world: World, node: str) -> None:
    item = start(world)
    wait_until_due(world)

    def expire() -> None:
        world.lease._valid_until = 0.0

    world.source.on_read = expire
    world.cycle()
    assert (read_replicas(world, item), list_stops(world)) == (1, [])


def test_never_when_the_process_is_held_up_between_the_answer_and_the_write(
    world: World, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A suspended virtual machine, a swapped-out process: the time is up, and nothing is sent."""
    item = start(world)
    wait_until_due(world)
    monkeypatch.setattr(usage_check, "WRITE_SECONDS", -1.0)
    world.cycle()
    [action] = world.list_actions()
    assert action.state is ActionState.WARNED
    assert "was not sent in time" in action.steps[-1].note.en
    assert (read_replicas(world, item), list_stops(world)) == (1, [])


@contextmanager
def admission_webhook(world: World, *, seconds: float) -> Iterator[list[bool]]:
    """Takes so long for every real change of a Deployment of the team, and then allows it; whether each was a dry
    run."""
    authority, calls = trustme.CA(), list[bool]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            calls.append(bool(review["request"].get("dryRun")))
            if not calls[-1]:
                time.sleep(seconds)
            answer = {"uid": review["request"]["uid"], "allowed": True}
            body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer})
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    name = world.kubernetes.make_name("slow")
    [configuration] = world.kubernetes.apply(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [
                {
                    "name": "slow.example.com",
                    "clientConfig": {
                        "url": f"https://127.0.0.1:{server.server_address[1]}/",
                        "caBundle": base64.b64encode(authority.cert_pem.bytes()).decode(),
                    },
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}},
                    "rules": [
                        {
                            "apiGroups": ["apps"],
                            "apiVersions": ["v1"],
                            "operations": ["UPDATE"],
                            "resources": ["deployments"],
                        }
                    ],
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                    "timeoutSeconds": 30,
                }
            ],
        }
    )
    try:
        yield calls
    finally:
        world.kubernetes.delete(configuration)
        server.shutdown()
        server.server_close()


def test_never_on_work_that_began_while_an_admission_webhook_stalled(world: World, node: str) -> None:
    """The server gives up after its own five seconds; the change does not happen later."""
    item = start(world)
    wait_until_due(world)
    with admission_webhook(world, seconds=9.0) as calls:
        wait_for(lambda: _is_called(world, item, calls))
        calls.clear()
        began = time.monotonic()
        world.cycle()
        assert time.monotonic() - began < 8
        assert calls == [True, False], "the dry run, and the write"
        begin_work(world)
        assert [each.state for each in world.list_actions()] == [ActionState.ACTING], "open whether it has happened"
        time.sleep(max(0.0, began + 11 - time.monotonic()))
        assert read_replicas(world, item) == 1
    for _ in range(2):
        world.cycle()
    assert read_replicas(world, item) == 1
    assert [each.state for each in world.list_actions()] == [ActionState.WARNED]


def _is_called(world: World, item: Json, calls: list[bool]) -> bool:
    """A new webhook takes a moment; a dry run shows when it is there."""
    body = {"metadata": {"annotations": {"try": str(time.monotonic())}}}
    world.kubernetes.request("PATCH", f"{path_of(item)}?dryRun=All", body, media="application/merge-patch+json")
    return bool(calls)


def test_never_on_work_that_began_while_the_api_server_hung(kubernetes: Cluster, tmp_path: Path, node: str) -> None:
    """It takes the request, and answers nothing for longer than the client waits."""
    with kubernetes.another_api_server() as server:
        world = World(kubernetes, tmp_path)
        item = start(world)
        wait_until_due(world)
        world.kubernetes = server.cluster
        world.start()
        world.kubernetes = kubernetes
        world.rest(minutes=5)
        world.cycle()  # a new process acts on nothing at first sight
        world.source.reads.clear()
        world.source.on_read = lambda: server.pause() if len(world.source.reads) == 2 else None
        began = time.monotonic()
        try:
            world.cycle()
            assert 5 <= time.monotonic() - began < 14
            begin_work(world)
        finally:
            server.resume()
        world.source.on_read = lambda: None
        time.sleep(3.0)
        assert read_replicas(world, item) == 1, world.explain()
        for _ in range(2):
            world.cycle()
        assert read_replicas(world, item) == 1, world.explain()
        assert [each.state for each in world.list_actions()] == [ActionState.WARNED]
        world.close()


def test_every_object_of_a_workload_has_its_own_reading(world: World, node: str) -> None:
    """Two Jobs of a CronJob: work begins on the second after the first was suspended."""
    jobs = start_cron_job(world)
    wait_until_due(world)

    def begin_after_first(step: str, _action: object) -> None:
        if step == "patched":
            begin_work(world)

    world.on_step = begin_after_first
    world.start()
    world.rest(minutes=5)
    for _ in range(2):
        world.cycle()
    suspended = [bool(world.kubernetes.request("GET", path_of(job))["spec"].get("suspend")) for job in jobs]
    assert sorted(suspended) == [False, True], world.explain()
    assert len(list_stops(world)) == 1


def test_a_second_object_is_not_held_back_by_the_pods_of_the_first(world: World, node: str) -> None:
    """They are gone by then, and report nothing any more."""
    jobs = start_cron_job(world)
    wait_until_due(world)
    world.source.reads.clear()
    world.cycle()
    assert all(world.kubernetes.request("GET", path_of(job))["spec"].get("suspend") for job in jobs), world.explain()
    assert [len(pods) for pods in world.source.reads] == [2, 2, 1]


def start_cron_job(world: World) -> list[Json]:
    """A CronJob with two running Jobs, each with a pod that holds a GPU."""
    template = make_job("x", world.namespace)["spec"]
    template["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    [cron] = world.kubernetes.apply(
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": {"name": "nightly", "namespace": world.namespace},
            "spec": {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": template}},
        }
    )
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": cron["metadata"]["uid"]}
    jobs = []
    for number in range(2):
        job = make_job(f"nightly-{number}", world.namespace)
        job["spec"] = template
        job["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        jobs += world.kubernetes.apply(job)
    world.kubernetes.wait_for_pods(world.namespace, 2)
    # Its controller writes the status of a Job until then, which would be a conflict.
    wait_for(lambda: all(world.kubernetes.request("GET", path_of(job))["status"].get("ready") == 1 for job in jobs))
    return jobs


def test_a_bare_pod_that_begins_to_work_is_not_evicted(world: World, node: str) -> None:
    [item] = world.kubernetes.apply(pod("shell", world.namespace, gpus=1))
    world.kubernetes.wait_for_pods(world.namespace, 1)
    world.policies.policy = suspend_policy(action=ReclaimAction.EVICT)
    wait_until_due(world)
    stalls = iter([begin_work])
    stall_database(world, lambda: next(stalls, lambda _: None)(world))
    world.cycle()
    assert world.kubernetes.exists(item)
    assert list_stops(world) == []
    world.source.working.clear()
    world.cycle()
    wait_for(lambda: not world.kubernetes.exists(item))
    [stop] = list_stops(world)
    assert "/eviction?" in stop
