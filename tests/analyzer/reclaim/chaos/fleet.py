"""Workloads of all kinds, their objects, and when each of them really works."""

import copy
import json
import random
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpusteward.analyzer.reclaim.kinds.objects import read_pointer
from tests.analyzer.reclaim.custom_kinds import create, custom, define, reference_to
from tests.analyzer.sources.owners.test_real_owners import make_job, make_set
from tests.kubernetes.cluster import Cluster, Json, pod

APP = "app"  # label of all pods of a workload
POOL = "chaos/pool"
POOL_REPLICAS = 5
STOPPED = "/metadata/annotations/kubeflow-resource-stopped"

DIRECT: Mapping[str, tuple[str, str, Any, Json]] = {
    # kind: version, JSON pointer that suspends, value, spec; its pods are its own
    "Workspace": ("kubeflow.org/v1", "/spec/paused", True, {"kind": "jupyterlab", "paused": False}),
    "RayCluster": ("ray.io/v1", "/spec/suspend", True, {"headGroupSpec": {}}),
    "RayJob": ("ray.io/v1", "/spec/suspend", True, {"entrypoint": "x", "suspend": False}),
    "RayService": ("ray.io/v1", "/spec/suspend", True, {}),
    "TrainJob": ("trainer.kubeflow.org/v1", "/spec/suspend", True, {"runtimeRef": {"name": "x"}}),
    "JobSet": ("jobset.x-k8s.io/v1", "/spec/suspend", True, {"replicatedJobs": []}),
    "LeaderWorkerSet": ("leaderworkerset.x-k8s.io/v1", "/spec/replicas", 0, {"replicas": 2}),
    "Rollout": ("argoproj.io/v1", "/spec/replicas", 0, {"replicas": 2, "strategy": {"canary": {}}}),
    "PyTorchJob": ("kubeflow.org/v1", "/spec/runPolicy/suspend", True, {"runPolicy": {"cleanPodPolicy": "None"}}),
    "TFJob": ("kubeflow.org/v1", "/spec/runPolicy/suspend", True, {}),
    "MPIJob": ("kubeflow.org/v1", "/spec/runPolicy/suspend", True, {"runPolicy": {"suspend": False}}),
    "XGBoostJob": ("kubeflow.org/v1", "/spec/runPolicy/suspend", True, {}),
    "PaddleJob": ("kubeflow.org/v1", "/spec/runPolicy/suspend", True, {}),
    "JAXJob": ("kubeflow.org/v1", "/spec/runPolicy/suspend", True, {}),
    "InferenceService": (
        *("serving.kserve.io/v1", "/metadata/annotations/serving.kserve.io~1stop", "true"),
        {"predictor": {"minReplicas": 1}},
    ),
}
OTHER_DEFINITIONS = (
    *(("kubeflow.org", "Notebook", "v1"), ("kueue.x-k8s.io", "Workload", "v1beta1")),
    *(("keda.sh", "ScaledObject", "v1alpha1"), ("batch.volcano.sh", "Job", "v1")),
    ("bus.volcano.sh", "Command", "v1alpha1"),
)
BUILT_IN = (("v1", "Pod"), ("apps/v1", "Deployment"), ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet"))
BUILT_IN_JOBS = (("batch/v1", "Job"), ("batch/v1", "CronJob"))


class Schedule:
    """When a workload works: intervals, in order."""

    def __init__(self, periods: Sequence[tuple[float, float]]) -> None:
        self.periods = periods
        self._starts = [begin for begin, _ in periods]

    @classmethod
    def draw(cls, chance: random.Random, *, begin: float, end: float, step: float) -> "Schedule":
        """Idle for a fraction of an hour or for most of a day, in steps of the cycle; some never, some always."""
        nature = chance.random()
        if nature < 0.04:
            return cls([(begin - step, end + 100 * step)])
        periods, at = [], begin - chance.uniform(1, 6) * step
        while at < end:
            until = at + chance.uniform(0.2, 6) * step
            periods.append((at, until))
            is_long = chance.random() < 0.6
            at = until + (chance.uniform(4, 24) if is_long else chance.uniform(0.3, 3)) * step
        return cls(periods)

    def works_within(self, begin: float, end: float) -> bool:
        """Whether there is work in (begin, end]."""
        number = bisect_right(self._starts, end) - 1
        return number >= 0 and self.periods[number][1] > begin

    def last_work(self, now: float) -> float:
        number = bisect_right(self._starts, now) - 1
        return min(self.periods[number][1], now) if number >= 0 else float("-inf")


@dataclass
class Subject:
    """One workload."""

    name: str
    namespace: str
    kind: str  # as the run names it: KedaDeployment and Pool are Deployments
    owner: tuple[str, str] = ("", "")  # kind and name of its root owner
    owner_uid: str = ""
    target_uid: str = ""  # of the object that reclaim changes
    pods: int = 1
    suspended: Mapping[str, Any] = field(default_factory=dict)  # JSON pointer -> value; of the target
    objects: dict[str, Json] = field(default_factory=dict)  # by uid, as they were at first
    schedule: Schedule = field(default_factory=lambda: Schedule([]))
    is_gitops: bool = False  # a controller puts it back whenever it is changed
    restores_by: str = "api"  # or hand, or nobody: what its user does who needs it again
    share: float = 1.0  # of its pods that work when it works

    @property
    def is_pool(self) -> bool:
        return self.kind == "Pool"

    @property
    def is_stopped_by_command(self) -> bool:
        return self.kind == "VolcanoJob"

    def is_suspended(self, target: Json) -> bool:
        if self.is_stopped_by_command:
            return (target.get("status") or {}).get("state", {}).get("phase") == "Aborted"
        if self.kind == "Notebook":
            return read_pointer(target, STOPPED) is not None
        if self.is_pool:
            return int(target["spec"]["replicas"]) < POOL_REPLICAS
        fields = self.suspended.items()
        return bool(fields) and all(read_pointer(target, pointer) == value for pointer, value in fields)


class Builder:
    """Creates workloads."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._makers: dict[str, Callable[[Subject], None]] = {
            **dict.fromkeys(("Deployment", "ReplicaSet", "StatefulSet"), self._make_set),
            "Pool": self._make_pool,
            "Job": self._make_job,
            "CronJob": self._make_cron_job,
            "Notebook": self._make_notebook,
            "KueueJob": self._make_kueue_job,
            "KedaDeployment": self._make_keda_deployment,
            "VolcanoJob": self._make_volcano_job,
            "Pod": self._make_pod,
            **dict.fromkeys(DIRECT, self._make_direct),
        }

    @property
    def kinds(self) -> list[str]:
        return list(self._makers)

    def define_kinds(self) -> None:
        for kind, (version, *_) in DIRECT.items():
            define(self._cluster, version.partition("/")[0], kind, version.partition("/")[2])
        for group, kind, version in OTHER_DEFINITIONS:
            define(self._cluster, group, kind, version)

    def make(self, subject: Subject) -> None:
        self._makers[subject.kind](subject)

    def _keep(self, subject: Subject, root: Json, target: Json | None = None, *others: Json) -> None:
        target = target or root
        subject.owner = (root["kind"], root["metadata"]["name"])
        subject.owner_uid, subject.target_uid = root["metadata"]["uid"], target["metadata"]["uid"]
        subject.objects = {each["metadata"]["uid"]: each for each in (root, target, *others)}

    def _make_set(self, subject: Subject) -> None:
        item = make_set(subject.kind, subject.name, subject.namespace)
        item["spec"]["replicas"] = subject.pods
        subject.suspended = {"/spec/replicas": 0}
        self._keep(subject, *self._cluster.apply(item))

    def _make_pool(self, subject: Subject) -> None:
        subject.pods = POOL_REPLICAS
        item = make_set("Deployment", subject.name, subject.namespace, **{POOL: "yes"})
        item["spec"]["replicas"] = subject.pods
        self._keep(subject, *self._cluster.apply(item))

    def _job(self, subject: Subject, name: str, **metadata: Any) -> Json:
        item = make_job(name, subject.namespace)
        item["spec"]["template"]["metadata"] = {"labels": {APP: subject.name}}
        item["spec"] |= {"parallelism": subject.pods, "completions": subject.pods}
        item["metadata"] |= metadata
        return item

    def _make_job(self, subject: Subject) -> None:
        subject.suspended = {"/spec/suspend": True}
        self._keep(subject, *self._cluster.apply(self._job(subject, subject.name)))

    def _make_cron_job(self, subject: Subject) -> None:
        subject.pods, subject.suspended = 1, {"/spec/suspend": True}
        template = {"spec": self._job(subject, "unused")["spec"]}
        cron = {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": {"name": subject.name, "namespace": subject.namespace},
            "spec": {"schedule": "0 3 29 2 *", "jobTemplate": template},
        }
        [owner] = self._cluster.apply(cron)
        job = self._job(subject, f"{subject.name}-1", ownerReferences=[reference_to(owner)])
        self._keep(subject, owner, *self._cluster.apply(job))

    def _make_notebook(self, subject: Subject) -> None:
        subject.pods = 1
        item = custom("kubeflow.org/v1", "Notebook", subject.name, subject.namespace, {"template": {}})
        notebook = create(self._cluster, item)
        stateful = make_set("StatefulSet", subject.name, subject.namespace)
        stateful["metadata"]["ownerReferences"] = [reference_to(notebook)]
        self._keep(subject, notebook, notebook, *self._cluster.apply(stateful))

    def _make_kueue_job(self, subject: Subject) -> None:
        subject.suspended = {"/spec/active": False}
        [job] = self._cluster.apply(self._job(subject, subject.name, labels={"kueue.x-k8s.io/queue-name": "gpus"}))
        labels = {"kueue.x-k8s.io/job-uid": job["metadata"]["uid"]}
        spec = {"queueName": "gpus"}
        item = custom("kueue.x-k8s.io/v1beta1", "Workload", subject.name, subject.namespace, spec, labels=labels)
        self._keep(subject, job, create(self._cluster, item))

    def _make_keda_deployment(self, subject: Subject) -> None:
        pointer = "/metadata/annotations/autoscaling.keda.sh~1paused-replicas"
        subject.suspended = {pointer: "0"}
        item = make_set("Deployment", subject.name, subject.namespace)
        item["spec"]["replicas"] = subject.pods
        [deployment] = self._cluster.apply(item)
        spec = {"scaleTargetRef": {"name": subject.name}, "triggers": []}
        scaled = create(
            self._cluster, custom("keda.sh/v1alpha1", "ScaledObject", subject.name, subject.namespace, spec)
        )
        self._keep(subject, deployment, scaled)

    def _make_volcano_job(self, subject: Subject) -> None:
        item = custom("batch.volcano.sh/v1", "Job", subject.name, subject.namespace, {"minAvailable": subject.pods})
        item["status"] = {"state": {"phase": "Running"}}
        self._keep(subject, create(self._cluster, item))

    def _make_direct(self, subject: Subject) -> None:
        version, pointer, value, spec = DIRECT[subject.kind]
        subject.suspended = {pointer: value}
        if "replicas" in spec:
            spec = {**spec, "replicas": subject.pods}
        item = custom(version, subject.kind, subject.name, subject.namespace, spec)
        self._keep(subject, create(self._cluster, item))

    def _make_pod(self, subject: Subject) -> None:
        subject.pods = 1
        item = pod(subject.name, subject.namespace, gpus=1, labels={APP: subject.name})
        self._keep(subject, *self._cluster.apply(item))


def make_pod_of(subject: Subject, owner: Json, number: int) -> Json:
    """A pod as the controller of a custom resource makes it."""
    return pod(
        f"{subject.name}-{number}",
        subject.namespace,
        gpus=1,
        labels={APP: subject.name},
        ownerReferences=[reference_to(owner)],
    )


def describe_original(item: Json) -> str:
    """What must be the same again: the whole spec, labels and annotations."""
    about = item["metadata"]
    annotations = {
        name: value
        for name, value in (about.get("annotations") or {}).items()
        if not name.startswith(("deployment.kubernetes.io/", "batch.kubernetes.io/"))  # of the controllers
    }
    kept = {"spec": item.get("spec"), "labels": about.get("labels") or {}, "annotations": annotations}
    return json.dumps(kept, sort_keys=True)


def draw_subjects(
    builder: Builder,
    namespaces: Sequence[str],
    count: int,
    chance: random.Random,
    *,
    begin: float,
    end: float,
    step: float,
) -> list[Subject]:
    """So many workloads, of each kind about as many."""
    subjects = []
    for number in range(count):
        kind = builder.kinds[number % len(builder.kinds)]
        subject = Subject(f"{kind.lower()}-{number}", namespaces[number % len(namespaces)], kind)
        subject.pods = chance.choice((1, 1, 2, 3))
        subject.schedule = Schedule.draw(chance, begin=begin, end=end, step=step)
        subject.is_gitops = kind not in ("Pod", "Pool", "VolcanoJob") and chance.random() < 0.06
        subject.restores_by = chance.choice(("api", "api", "api", "hand", "nobody"))
        subject.share = chance.choice((0.01, 0.5, 1.0))
        subjects.append(subject)
    return subjects


def copy_of(item: Json) -> Json:
    return copy.deepcopy(item)
