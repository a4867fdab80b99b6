"""The run: cycles, faults, users, and what is counted.

    run = Chaos(kubernetes, folder, plan=ChaosPlan(workloads=500, days=20, cycles_per_day=24, seed=1))
    report = run.run()

Simulated time stands still during a cycle. After it, controllers and users do what they do, until the cluster is at
rest; then the next cycle is one step later. Window and grace period of the policies are two steps and one.
"""

import contextlib
import json
import random
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

from gpusteward.analyzer.ledger.database.db_engine import open_engine
from gpusteward.analyzer.ledger.database.schema_version import create_tables
from gpusteward.analyzer.reclaim.execution.journal import Action, ActionState, Journal
from gpusteward.analyzer.reclaim.kinds.objects import make_patch, read_pointer
from tests.analyzer.reclaim.chaos.controllers import MERGE, Controllers
from tests.analyzer.reclaim.chaos.faults import FaultPlan, Faults
from tests.analyzer.reclaim.chaos.fleet import (
    APP,
    BUILT_IN,
    BUILT_IN_JOBS,
    DIRECT,
    OTHER_DEFINITIONS,
    POOL,
    Builder,
    Subject,
    copy_of,
    describe_original,
    draw_subjects,
)
from tests.analyzer.reclaim.chaos.informers import Informer
from tests.analyzer.reclaim.chaos.invariants import INVARIANTS, Moment, Observer, check_journal
from tests.analyzer.reclaim.chaos.processes import Replica
from tests.analyzer.reclaim.world import START, enforce_rules
from tests.kubernetes.cluster import ApiError, Cluster, Json, path_of
from tests.kubernetes.relay import Relay

DAY = 86_400.0
REST_SECONDS = 90.0
LAST_CYCLES = 6
PODS = "v1/Pod"


@dataclass(frozen=True)
class ChaosPlan:
    workloads: int
    days: float
    cycles_per_day: int
    seed: int
    most_seconds: float = 3600.0  # real ones; after them it comes to its end early, and says so
    is_harsh: bool = False

    @property
    def step(self) -> float:
        return DAY / self.cycles_per_day

    @property
    def cycles(self) -> int:
        return round(self.days * self.cycles_per_day)


@dataclass
class ChaosReport:
    """What was counted."""

    plan: ChaosPlan
    violations: Counter[str]
    details: list[str]
    counts: dict[str, int]
    faults: dict[str, int]
    states: dict[str, int]
    suspended_by_kind: dict[str, int]
    cycles: int
    seconds: float
    errors: Counter[str] = field(default_factory=Counter)

    @property
    def holds(self) -> bool:
        return not self.violations


class Chaos:
    """See above."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        plan: ChaosPlan,
        *,
        print_progress: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self._cluster, self._folder, self._plan, self._print = cluster, folder, plan, print_progress
        self._chance = random.Random(plan.seed)
        self._now = START
        self._own = cluster.add_namespace("gpusteward")
        self._namespaces = [cluster.add_namespace("team") for _ in range(max(1, min(10, plan.workloads // 20)))]
        self._builder = Builder(cluster)
        self._started: dict[str, float] = {}  # uid of a pod -> simulated time at which it was seen first
        self._counts: Counter[str] = Counter()
        self._fault_counts: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._seconds: Counter[str] = Counter()  # where the real time goes
        self._is_off = False

    def run(self) -> ChaosReport:
        started = time.monotonic()
        self._prepare()
        with Relay(self._cluster.address, self._cluster.port) as relay, self._replicas(relay):
            faults, done = FaultPlan(self._chance, is_harsh=self._plan.is_harsh), 0
            for number in range(self._plan.cycles):
                if time.monotonic() - started > self._plan.most_seconds:
                    self._print("the time is up: the end begins")
                    break
                with self._timed("all"):
                    self._run_cycle(faults.draw(), relay)
                done = number + 1
                if done % self._plan.cycles_per_day == 0:
                    self._print_day(done, time.monotonic() - started)
            self._end(relay)
        report = self._report(done, time.monotonic() - started)
        for informer in self._informers.values():
            informer.stop()
        self._engine.dispose()
        return report

    # Before.

    def _prepare(self) -> None:
        self._print("definitions, nodes, workloads")
        self._builder.define_kinds()
        for _ in range(4):
            self._cluster.add_node(gpus=1000)
        end = START + self._plan.days * DAY
        self._subjects = draw_subjects(
            self._builder,
            self._namespaces,
            self._plan.workloads,
            self._chance,
            begin=START,
            end=end,
            step=self._plan.step,
        )
        for subject in self._subjects:
            self._builder.make(subject)
        self._observer = Observer(self._subjects, window_seconds=2 * self._plan.step)
        self._informers = self._open_informers()
        self._controllers = Controllers(self._cluster, self._informers, self._subjects)
        self._observer.moment = Moment(self._now)
        self._settle(seconds=120)
        for subject in self._subjects:  # defaults and annotations of controllers are there now
            for uid in subject.objects:
                found = self._controllers.find(uid)
                assert found is not None
                subject.objects[uid] = copy_of(found)
        self._write_files()

    def _open_informers(self) -> dict[str, Informer]:
        kinds = [*BUILT_IN, *BUILT_IN_JOBS, *((version, kind) for kind, (version, *_) in DIRECT.items())]
        kinds += [(f"{group}/{version}", kind) for group, kind, version in OTHER_DEFINITIONS]
        informers: dict[str, Informer] = {}
        for version, kind in kinds:
            name = f"{version}/{kind}"
            see = self._see_pod if name == PODS else self._observer.see
            informers[name] = Informer(self._cluster, version, f"{kind.lower()}s", kind, see)
        return informers

    def _see_pod(self, change: str, item: Json) -> None:
        if item["metadata"]["namespace"] in self._namespaces:
            self._started.setdefault(item["metadata"]["uid"], self._now)
            self._observer.see_pod(change, item)

    def _write_files(self) -> None:
        step = round(self._plan.step)
        common = {
            "window": f"{2 * step}s",
            "grace": f"{step}s",
            "warnings": 1,
            "warning_interval": "60s",
            "highest_chance": 1,
            "limits": {"per_cycle": 1000, "per_namespace": 1000, "per_hour": 10_000},
        }
        pool = {"name": "pools", "match": {"labels": {POOL: "*"}}, "action": "scale-to-keep", "interchangeable": True}
        pool |= {"keep": {"window": f"{2 * step}s", "headroom": 1.25, "patience": f"{min(step, 10_800)}s"}}
        pods = {"name": "pods", "match": {"kinds": ["Pod"]}, "action": "evict"}
        others = {"name": "others", "action": "suspend"}
        policies = [{**each, **common} for each in (pool, pods, others)]
        self._policies = json.dumps({"policies": policies})
        self._write_policies("whole")
        with contextlib.closing(sqlite3.connect(self._folder / "outbox.db")) as outbox, outbox:
            outbox.execute("PRAGMA journal_mode=WAL")
            outbox.execute("CREATE TABLE notices (key TEXT PRIMARY KEY, sent_at REAL, delivered_at REAL)")
        self._engine = open_engine(f"sqlite:///{self._folder / 'ledger.db'}")
        create_tables(self._engine)
        uid = str(self._cluster.request("GET", "/api/v1/namespaces/kube-system")["metadata"]["uid"])
        self._journal = Journal(self._engine, lambda: uid)

    def _write_policies(self, state: str) -> None:
        """As a person or a template may leave the file behind."""
        narrow = {"name": "narrow", "match": {"namespaces": ["nobody"]}, "action": "suspend"}
        texts = {
            "whole": self._policies,
            "empty": "",
            "broken": self._policies[: len(self._policies) // 2],
            "narrow": json.dumps({"policies": [narrow]}),
        }
        path = self._folder / "policies.yaml"
        if state == "missing":
            path.unlink()
            return
        new = path.with_suffix(".new")
        new.write_text(texts[state])
        new.replace(path)

    @contextlib.contextmanager
    def _replicas(self, relay: Relay) -> Iterator[None]:
        account = self._cluster.add_account(self._own, enforce_rules())
        config = {
            "folder": str(self._folder),
            "step_seconds": self._plan.step,
            "host": self._cluster.address,
            "port": relay.port,
            "account": str(account.folder),
            "own_namespace": self._own,
            "cool_down_minutes": 2 * self._plan.step / 60,
        }
        self._replica = [Replica(name, self._folder, config) for name in ("analyzer-0", "analyzer-1")]
        for replica in self._replica:
            replica.start(now=self._now, holder=replica.name)
        try:
            yield
        finally:
            for replica in self._replica:
                replica.close()

    # One cycle.

    def _run_cycle(self, faults: Faults, relay: Relay) -> None:
        self._now += self._plan.step
        self._deliver()
        self._switch(faults.is_switched_off)
        self._fault_counts.update(faults.names)
        self._write_policies(faults.policies)
        if faults.usage != "failed":
            order = self._make_order(faults)
            with self._timed("cycles"), self._disturb(faults, relay):
                for number in faults.runners:
                    self._replica[number].send(order)
                for number in faults.runners:
                    self._take_answer(self._replica[number].read())
        self._write_policies("whole")
        with self._timed("restarts"):
            self._restart_dead()
        with self._timed("coming to rest"):
            self._settle()
        with self._timed("users"):
            self._act_as_users(faults)
        with self._timed("coming to rest"):
            self._settle()

    @contextlib.contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self._seconds[name] += time.monotonic() - started

    def _make_order(self, faults: Faults) -> dict[str, Any]:
        step, now = self._plan.step, self._now
        pods = self._list_pods()
        moment = Moment(now, is_switched_off=faults.is_switched_off, has_policies=faults.policies == "whole")
        rows: list[dict[str, Any]] = []
        working: set[str] = set()
        for subject in self._subjects:
            running = [each for each in pods.get(subject.name, ()) if each["status"].get("phase") == "Running"]
            running.sort(key=lambda each: str(each["metadata"]["name"]))
            moves = subject.schedule.works_within(now - step, now)
            is_late = not moves and subject.schedule.works_within(now, now + step / 4) and self._chance.random() < 0.6
            active = {each["metadata"]["uid"] for each in running[: self._count_active(subject, moves or is_late)]}
            working |= active
            is_doubtful = faults.usage == "partial" and self._chance.random() < 0.5
            if is_doubtful:
                moment.doubtful.update(each["metadata"]["uid"] for each in running)
            for each in running:
                is_active = moves and each["metadata"]["uid"] in active
                rows.append(self._describe_pod(subject, each, is_active=is_active, is_doubtful=is_doubtful))
        moment.active = working
        moment.started = {
            name: max(self._started[each["metadata"]["uid"]] for each in found) for name, found in pods.items()
        }
        moment.pods = {name: [each["metadata"]["uid"] for each in found] for name, found in pods.items()}
        self._observer.moment = moment
        return {
            "do": "cycle",
            "now": now,
            "pods": None if faults.usage == "stale" else rows,
            "working": sorted(working),
            "source_is_down": faults.usage == "gone",
            "die_at_step": faults.die_at_step,
        }

    def _count_active(self, subject: Subject, is_working: bool) -> int:
        if not is_working:
            return 0
        return max(1, ceil(subject.share * (4 if subject.is_pool else subject.pods)))

    def _describe_pod(self, subject: Subject, pod: Json, *, is_active: bool, is_doubtful: bool) -> dict[str, Any]:
        about = pod["metadata"]
        is_unknown = is_doubtful and self._chance.random() < 0.5
        return {
            "kind": subject.owner[0],
            "owner": subject.owner[1],
            "owner_uid": subject.owner_uid,
            "namespace": subject.namespace,
            "pod": about["name"],
            "uid": about["uid"],
            "node": pod["spec"]["nodeName"],
            "gpus": 1,
            "started_at": self._started[about["uid"]],
            "state": "unknown" if is_unknown else "active" if is_active else "idle",
            "coverage": 0.5 if is_doubtful and not is_unknown else 1.0,
        }

    @contextlib.contextmanager
    def _disturb(self, faults: Faults, relay: Relay) -> Iterator[None]:
        """Everything that happens while the cycle runs."""
        is_over = threading.Event()
        works: list[tuple[float, Callable[[], None]]] = []
        if faults.kill_seconds >= 0:
            works.append((faults.kill_seconds, self._replica[faults.runners[0]].kill))
        if faults.cut_seconds >= 0:
            works.append((faults.cut_seconds, lambda: self._cut(relay, faults.cut_length)))
        if faults.reset_seconds >= 0:
            works.append((faults.reset_seconds, relay.cut))
        if faults.steal_seconds >= 0:
            works.append((faults.steal_seconds, self._steal_lease))

        def run_after(seconds: float, work: Callable[[], None]) -> None:
            if not is_over.wait(seconds):
                work()

        threads = [threading.Thread(target=run_after, args=work) for work in works]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            is_over.set()
            for thread in threads:
                thread.join(30)

    def _cut(self, relay: Relay, seconds: float) -> None:
        with relay.down():
            time.sleep(seconds)

    def _steal_lease(self) -> None:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self._own}/leases/gpusteward-reclaim"
        with contextlib.suppress(ApiError):
            self._cluster.request("PATCH", path, {"spec": {"holderIdentity": "somebody"}}, media=MERGE)

    def _switch(self, is_off: bool) -> None:
        if is_off != self._is_off:
            value = "off" if is_off else None
            body = {"metadata": {"annotations": {"gpusteward.io/reclaim": value}}}
            self._cluster.request("PATCH", f"/api/v1/namespaces/{self._own}", body, media=MERGE)
            self._is_off = is_off

    def _take_answer(self, answer: dict[str, Any] | None) -> None:
        if answer is not None and "error" in answer:
            self._errors[answer["error"][:90]] += 1
        self._counts["cycles with an answer" if answer is not None else "processes killed"] += 1

    def _restart_dead(self) -> None:
        for replica in self._replica:
            if not replica.is_running:
                replica.stop()
                is_new = self._chance.random() < 0.5  # a new pod, or the same one with a new container
                holder = f"{replica.name}-{replica.starts}" if is_new else replica.name
                replica.start(now=self._now, holder=holder)

    # Users, controllers, notices.

    def _deliver(self) -> None:
        """Most notices arrive at once, some late."""
        with contextlib.closing(sqlite3.connect(self._folder / "outbox.db", timeout=30)) as outbox, outbox:
            rows = outbox.execute("SELECT key FROM notices WHERE delivered_at IS NULL").fetchall()
            done = [(self._now - self._plan.step, key) for (key,) in rows if self._chance.random() < 0.85]
            outbox.executemany("UPDATE notices SET delivered_at = ? WHERE key = ?", done)

    def _act_as_users(self, faults: Faults) -> None:
        dies = faults.restore_dies_at_step
        self._restart_warned(faults.restart_ratio)
        for subject in self._subjects:
            target = self._controllers.find(subject.target_uid)
            if target is None:
                self._create_again(subject)
                continue
            action = (target["metadata"].get("annotations") or {}).get("gpusteward.io/action")
            if action is None or not subject.is_suspended(target):
                continue
            is_needed = subject.schedule.works_within(self._now, self._now + self._plan.step)
            if subject.is_gitops:
                self._put_back(subject, target, is_whole=self._chance.random() < 0.3)
                self._counts["reverts by a controller"] += 1
            elif is_needed and subject.restores_by == "hand" and subject.kind != "VolcanoJob":
                self._put_back(subject, target, is_whole=False)
                self._counts["reverts by hand"] += 1
            elif is_needed and subject.restores_by != "nobody":
                self._restore(action, by="user", dies_at_step=dies)
                dies = -1
        self._restart_dead()

    def _restart_warned(self, ratio: float) -> None:
        """Owners who were warned and want to go on: new pods, often of the same names. Not those of a Job, to which
        deleted pods are failures: it waits for minutes, and fails after six."""
        warned = {action.workload.name for action in self._list_actions(ActionState.WARNED)}
        for subject in self._subjects:
            if subject.kind in ("Pod", "Job", "CronJob", "KueueJob") or subject.owner[1] not in warned:
                continue
            if self._chance.random() < ratio:
                for pod in self._list_pods().get(subject.name, ()):
                    self._observer.restarted.add(pod["metadata"]["uid"])
                    self._cluster.request("DELETE", path_of(pod))
                self._counts["restarts after a warning"] += 1

    def _create_again(self, subject: Subject) -> None:
        """A bare pod that was evicted, when its user needs it."""
        assert subject.kind == "Pod", subject.name
        if subject.schedule.works_within(self._now, self._now + self._plan.step):
            self._builder.make(subject)
            self._observer.add(subject)
            self._counts["pods created again"] += 1

    def _put_back(self, subject: Subject, target: Json, *, is_whole: bool) -> None:
        """As a GitOps tool does it: the fields that it manages, or the whole object."""
        original = subject.objects[subject.target_uid]
        if is_whole:
            body = copy_of(original)
            body["metadata"] |= {"resourceVersion": target["metadata"]["resourceVersion"]}
            with contextlib.suppress(ApiError):  # it has changed meanwhile
                self._cluster.request("PUT", path_of(target), body)
            return
        pointers = ["/spec/replicas"] if subject.is_pool else list(subject.suspended)
        if subject.kind == "Notebook":
            pointers = ["/metadata/annotations/kubeflow-resource-stopped"]
        fields = {pointer: read_pointer(original, pointer) for pointer in pointers}
        if "/spec/runPolicy/suspend" in fields and "runPolicy" not in original["spec"]:
            fields = {"/spec/runPolicy": None}
        self._cluster.request("PATCH", path_of(target), make_patch(fields), media=MERGE)

    def _restore(self, action: str, *, by: str, dies_at_step: int = -1) -> str:
        replica = self._replica[0]
        if not replica.is_running:
            self._restart_dead()
        replica.send({"do": "restore", "now": self._now, "action": action, "by": by, "die_at_step": dies_at_step})
        answer = replica.read()
        if answer is None:
            self._counts["processes killed"] += 1
            self._fault_counts["kill -9 while restoring"] += 1
            return ""
        if "error" in answer:
            self._errors[answer["error"][:90]] += 1
        self._counts["restores asked for"] += 1
        return str(answer.get("state", ""))

    def _list_pods(self) -> dict[str, list[Json]]:
        pods: dict[str, list[Json]] = {}
        for pod in self._informers[PODS].list():
            if pod["metadata"]["namespace"] in self._namespaces:
                pods.setdefault(pod["metadata"]["labels"][APP], []).append(pod)
        return pods

    def _settle(self, seconds: float = REST_SECONDS) -> None:
        """Wait until all workloads have the pods they should have."""
        end = time.monotonic() + seconds
        while True:
            has_changed = self._controllers.run(self._list_pods())
            wrong = self._find_unsettled()
            if not has_changed and wrong is None:
                return
            if time.monotonic() > end:
                self._counts["times the cluster did not come to rest"] += 1
                self._print(f"not at rest: {wrong or has_changed}")
                return
            time.sleep(0.05)

    def _find_unsettled(self) -> str | None:
        pods = self._list_pods()
        for subject in self._subjects:
            target = self._controllers.find(subject.target_uid)
            if target is None:
                if subject.kind != "Pod":
                    return f"{subject.name} is missing"
                continue
            wanted = 0 if subject.is_suspended(target) else subject.pods
            if subject.is_pool:
                wanted = int(target["spec"]["replicas"])
            found = pods.get(subject.name, [])
            if len(found) != wanted or any(each["status"].get("phase") != "Running" for each in found):
                return f"{subject.name} has {len(found)} of {wanted} pods"
        return None

    # The end.

    def _end(self, relay: Relay) -> None:
        """No more faults: everything that is open is finished, everything suspended is restored."""
        self._print("the end: all is restored")
        self._switch(False)
        for _ in range(LAST_CYCLES):
            self._now += self._plan.step
            self._deliver()
            order = self._make_order(Faults())
            for row in order["pods"]:
                row["state"] = "active"
            order["working"] = [row["uid"] for row in order["pods"]]
            self._observer.moment.active = set(order["working"])
            self._replica[0].send(order)
            self._take_answer(self._replica[0].read())
            self._settle()
            for action in self._list_actions(ActionState.ACTED, ActionState.VERIFIED):
                if action.target is not None and action.target.kind != "Pod":
                    self._restore(action.id, by="the end")
            self._settle()

    def _list_actions(self, *states: ActionState) -> list[Action]:
        return self._journal.list_newest(states=states, limit=1_000_000)

    def _report(self, cycles: int, seconds: float) -> ChaosReport:
        observer = self._observer
        for subject in self._subjects:
            self._check_original(subject)
        with contextlib.closing(sqlite3.connect(self._folder / "outbox.db")) as outbox:
            rows = outbox.execute("SELECT key, delivered_at FROM notices WHERE delivered_at IS NOT NULL").fetchall()
        actions = self._list_actions()
        self._note_evictions(actions)
        events = check_journal(observer, actions, self._folder / "moves.log", dict(rows))
        suspended = Counter(each.subject.kind for each in observer.suspensions)
        again = Counter(each.subject.name for each in observer.suspensions)
        counts = {
            "workloads": len(self._subjects),
            "simulated days": round(cycles / self._plan.cycles_per_day),
            "cycles": cycles,
            "suspensions seen in the cluster": len(observer.suspensions),
            "different workloads suspended": len(again),
            "actions in the journal": len(actions),
            "journal events": events,
            "versions of objects looked at": observer.versions,
            "gaps in watching": sum(each.gaps for each in self._informers.values()),
            **dict(self._counts),
        }
        states = Counter(action.state.value for action in actions)
        return ChaosReport(
            self._plan,
            observer.violations,
            observer.details,
            counts,
            dict(self._fault_counts),
            dict(states),
            dict(suspended),
            cycles,
            seconds,
            self._errors,
        )

    def _note_evictions(self, actions: list[Action]) -> None:
        """An eviction is seen as a pod that is gone, without an annotation. It happened when it was begun: a process
        that was killed right after it says so only in a later cycle. That no pod at work is deleted is watched all the
        time."""
        by_name = {subject.owner[1]: subject for subject in self._subjects if subject.kind == "Pod"}
        for action in actions:
            if action.target is not None and action.target.kind == "Pod" and action.acted_at is not None:
                live = self._informers[PODS].objects
                assert action.target.uid not in live, "an evicted pod is still there"
                subject = by_name[action.workload.name]
                begun = [step.at for step in action.steps if step.state is ActionState.ACTING]
                self._observer.moment = Moment(begun[-1])
                self._observer.suspend(subject, action.id)

    def _check_original(self, subject: Subject) -> None:
        if subject.kind == "Pod":
            return  # nothing but an eviction ever changes it
        for uid, original in subject.objects.items():
            found = self._controllers.find(uid)
            if found is None or describe_original(found) != describe_original(original):
                text = describe_original(found) if found else "gone"
                self._observer.blame(INVARIANTS[8], f"{subject.name}: {text} instead of {describe_original(original)}")
            elif uid == subject.target_uid and subject.is_suspended(found):
                self._observer.blame(INVARIANTS[8], f"{subject.name} is still stopped")

    def _print_day(self, cycles: int, seconds: float) -> None:
        suspended = len(self._observer.suspensions)
        day = cycles // self._plan.cycles_per_day
        violations = sum(self._observer.violations.values())
        self._print(
            f"day {day}: {cycles} cycles in {seconds:.0f} s, {suspended} suspensions, "
            f"{self._counts['processes killed']} processes killed, {violations} violations; "
            + ", ".join(f"{name} {spent:.0f} s" for name, spent in self._seconds.items())
        )
