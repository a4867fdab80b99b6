"""The kinds of objects that own pods with GPUs: one table, from which all that depends on a kind follows.

A row says which group of the API a kind belongs to, how people use it, what is between it and its pods, and how reclaim
suspends it. From the rows follow: which owners the analyzer reads and the rights in the chart for it; the workload that
an agent derives from a pod alone; signatures that are for jobs only; the class in policies; pools; what reclaim sets,
refuses and restores; the reference page (`make docs`); the rules of the simulated cluster.

A new kind is one row. What a row cannot say is a predicate in `analyzer/reclaim/kinds/refusals.py`. Metrics and agents
name a kind without its group: there the first row of a name counts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

Json = dict[str, Any]
NOW = "{now}"
"""As a value: the time of the action, as RFC 3339."""


class WorkloadClass(StrEnum):
    """How people use a workload; it decides the default windows."""

    INTERACTIVE = "interactive"  # notebooks, workspaces, bare pods
    BATCH = "batch"  # jobs that run through
    SERVING = "serving"  # replicas that wait for requests


INTERACTIVE, BATCH, SERVING = WorkloadClass.INTERACTIVE, WorkloadClass.BATCH, WorkloadClass.SERVING


class Loss(StrEnum):
    """What the users of a suspended object lose; the texts are in `messages/reclaim_kinds.py`."""

    MEMORY = "memory"
    MEMORY_NOT_VOLUMES = "memory, not volumes"
    KERNELS = "kernels"
    ENDPOINT = "endpoint"
    WORK_OF_PODS = "work of running pods"
    WORK = "work"
    RAY_CLUSTER = "ray cluster"
    RAY_JOB = "ray job"
    PLACE_IN_QUEUE = "place in queue"
    POD = "pod"


class CommandObject(NamedTuple):
    """An object that is created to stop or resume another one, where no field of it does."""

    version: str
    kind: str
    action: str

    def make_body(self, *, name: str, namespace: str, target: Json) -> Json:
        """`target`: apiVersion, kind, name and uid of the object."""
        reference = {**target, "controller": True}
        return {
            "apiVersion": self.version,
            "kind": self.kind,
            "metadata": {"name": name, "namespace": namespace, "ownerReferences": [reference]},
            "action": self.action,
            "target": reference,
            "reason": "gpusteward",
        }


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadKind:
    """One kind of object."""

    group: str
    name: str
    use: WorkloadClass | None = None  # None: not known
    children: tuple[str, ...] = ()  # the kinds between it and its pods; with some, it never owns a pod directly
    pod_label: str = ""  # has its name, on every pod below it
    is_pool: bool = False  # its replicas can be interchangeable; those of a StatefulSet have an identity each
    is_owner: bool = True  # the analyzer may read it as the owner of a pod
    loss: Loss | None = None  # None: reclaim does not suspend it
    suspended: Mapping[str, Any] = field(default_factory=dict)  # JSON pointer -> value; empty: by eviction or command
    replicas: str = ""  # JSON pointer of the number of replicas, if it has one
    has_deletion_cost: bool = False  # pod-deletion-cost decides which of its replicas go first
    is_scaled_by_keda: bool = False  # a ScaledObject would scale it up again
    is_evicted: bool = False  # a pod without an owner
    stop: CommandObject | None = None
    resume: CommandObject | None = None
    finished: tuple[str, ...] = ()  # conditions of one that has ended: there is nothing to suspend
    managed_by: str = ""  # JSON pointer of the name of its controller: another one may ignore `suspended`
    managers: tuple[str, ...] = ()  # the names that mean its usual controller

    @property
    def plural(self) -> str:
        return plural_of(self.name)

    def make_fields(self, now: str) -> dict[str, Any]:
        """What to set, by JSON pointer."""
        return {pointer: now if value == NOW else value for pointer, value in self.suspended.items()}

    def is_suspended(self, read: Callable[[str], Any]) -> bool:
        """Whether an object has the fields that suspend it, whoever has set them. `read`: JSON pointer -> value."""
        return bool(self.suspended) and all(
            read(pointer) is not None if value == NOW else read(pointer) == value
            for pointer, value in self.suspended.items()
        )


def plural_of(kind: str) -> str:
    """The plural in paths of the API; all kinds here form it this way."""
    return f"{kind.lower()}s"


# The object itself is patched, not its `/scale`: a patch there leaves nobody owning `spec.replicas`, and its
# annotations are dropped. An HPA leaves an owner with 0 replicas alone (ScalingDisabled) until it has more again. A
# scale-down does not respect PodDisruptionBudgets.
_SCALED: Json = {"suspended": {"/spec/replicas": 0}, "replicas": "/spec/replicas"}
_DEPLOYED: Json = {**_SCALED, "loss": Loss.MEMORY, "is_pool": True, "has_deletion_cost": True}
_SUSPEND: Json = {"/spec/suspend": True}
_JOB: Json = {"suspended": _SUSPEND, "managed_by": "/spec/managedBy"}
# A JobSet completes as Completed, a TrainJob as Complete.
_JOB_SET: Json = {**_JOB, "loss": Loss.WORK, "finished": ("Completed", "Complete", "Failed")}


def _owners(group: str, *names: str, use: WorkloadClass | None = None, **fields: Any) -> tuple[WorkloadKind, ...]:
    """Siblings that differ by their names."""
    return tuple(WorkloadKind(group, name, use, **fields) for name in names)


_ROWS = (
    # Evicted only where a policy says `action: evict`: nothing starts it again. A pod can own others: those of a
    # LeaderWorkerSet do.
    WorkloadKind("", "Pod", INTERACTIVE, loss=Loss.POD, is_evicted=True),
    WorkloadKind("", "ReplicationController", SERVING),
    WorkloadKind("apps", "Deployment", SERVING, ("ReplicaSet",), **_DEPLOYED, is_scaled_by_keda=True),
    WorkloadKind("apps", "ReplicaSet", SERVING, **_DEPLOYED),
    WorkloadKind("apps", "StatefulSet", SERVING, **_SCALED, loss=Loss.MEMORY_NOT_VOLUMES, is_scaled_by_keda=True),
    WorkloadKind("apps", "DaemonSet", SERVING),
    WorkloadKind(
        "batch",
        "Job",
        BATCH,
        **_JOB,
        loss=Loss.WORK_OF_PODS,
        finished=("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"),
        managers=("kubernetes.io/job-controller",),
    ),
    # Its own `suspend` would only block future runs: its running Jobs are suspended.
    WorkloadKind("batch", "CronJob", BATCH, ("Job",)),
    WorkloadKind("apps.openshift.io", "DeploymentConfig"),
    *_owners("apps.kruise.io", "CloneSet", "StatefulSet", "DaemonSet", use=SERVING),
    *_owners("apps.kruise.io", "BroadcastJob", "AdvancedCronJob"),
    WorkloadKind("argoproj.io", "Rollout", SERVING, ("ReplicaSet",), **_DEPLOYED, is_scaled_by_keda=True),
    *_owners("argoproj.io", "Workflow", "CronWorkflow", use=BATCH),
    # No field suspends it: a Command that refers to it aborts it, another one resumes it.
    WorkloadKind(
        "batch.volcano.sh",
        "Job",
        BATCH,
        loss=Loss.WORK,
        stop=CommandObject("bus.volcano.sh/v1alpha1", "Command", "AbortJob"),
        resume=CommandObject("bus.volcano.sh/v1alpha1", "Command", "ResumeJob"),
    ),
    WorkloadKind("batch.volcano.sh", "CronJob", BATCH),
    WorkloadKind("", "VolcanoJob", BATCH, is_owner=False),  # a name that metrics use for the Job of Volcano
    WorkloadKind("flow.volcano.sh", "JobFlow"),
    # Knative mode knows the annotation from 0.15.1, Standard mode (RawDeployment) from 0.16.0. An older controller
    # ignores it: then the pods stay, and the action ends as failed and is undone. `minReplicas: 0` has no effect in
    # Standard mode with an HPA.
    WorkloadKind(
        "serving.kserve.io",
        "InferenceService",
        SERVING,
        ("ReplicaSet", "Deployment", "Revision", "Configuration", "Service"),
        "serving.kserve.io/inferenceservice",
        is_pool=True,
        loss=Loss.ENDPOINT,
        suspended={"/metadata/annotations/serving.kserve.io~1stop": "true"},
    ),
    *_owners("serving.kserve.io", "InferenceGraph", "LLMInferenceService"),
    # Its groups are removed from the highest index down, whatever they do: no deletion cost. Its label comes after that
    # of an InferenceService, which may be above it.
    WorkloadKind(
        "leaderworkerset.x-k8s.io",
        "LeaderWorkerSet",
        SERVING,
        ("StatefulSet", "Pod"),
        "leaderworkerset.sigs.k8s.io/name",
        is_pool=True,
        **_SCALED,
        loss=Loss.MEMORY,
    ),
    WorkloadKind(
        "jobset.x-k8s.io",
        "JobSet",
        BATCH,
        ("Job",),
        "jobset.sigs.k8s.io/jobset-name",
        **_JOB_SET,
        managers=("jobset.sigs.k8s.io/jobset-controller",),
    ),
    # Kubeflow Trainer v2; it makes a JobSet.
    WorkloadKind(
        "trainer.kubeflow.org", "TrainJob", BATCH, **_JOB_SET, managers=("trainer.kubeflow.org/trainjob-controller",)
    ),
    # The training operator (1.7 and newer) deletes all pods of a job together, and they start from the beginning when
    # it is resumed; one worker alone is never evicted. The MPI operator has a name of its own for itself.
    *_owners(
        "kubeflow.org",
        *("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob"),
        use=BATCH,
        loss=Loss.WORK,
        suspended={"/spec/runPolicy/suspend": True},
        finished=("Succeeded", "Failed"),
        managed_by="/spec/runPolicy/managedBy",
        managers=("kubeflow.org/training-operator", "kubeflow.org/mpi-operator"),
    ),
    *_owners("kubeflow.org", "MXJob", "Experiment", "Trial", use=BATCH),
    *_owners("training.kubedl.io", "PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", use=BATCH),
    # The presence of the annotation counts, not its value. Its StatefulSet and pod are never touched: the controller
    # puts them back.
    WorkloadKind(
        "kubeflow.org",
        "Notebook",
        INTERACTIVE,
        ("StatefulSet",),
        loss=Loss.KERNELS,
        suspended={"/metadata/annotations/kubeflow-resource-stopped": NOW},
    ),
    WorkloadKind(
        "kubeflow.org",
        "Workspace",
        INTERACTIVE,
        ("StatefulSet",),
        "notebooks.kubeflow.org/workspace-name",
        loss=Loss.KERNELS,
        suspended={"/spec/paused": True},
    ),
    # Suspended as a whole, head and workers; suspending one worker group is not for users.
    WorkloadKind("ray.io", "RayCluster", INTERACTIVE, loss=Loss.RAY_CLUSTER, suspended=_SUSPEND),
    WorkloadKind("ray.io", "RayJob", BATCH, ("RayCluster",), loss=Loss.RAY_JOB, suspended=_SUSPEND),
    WorkloadKind("ray.io", "RayService", SERVING, ("RayCluster",), loss=Loss.ENDPOINT, suspended=_SUSPEND),
    WorkloadKind("ray.io", "RayCronJob"),
    WorkloadKind("serving.knative.dev", "Service", SERVING),
    *_owners("serving.knative.dev", "Configuration", "Revision"),
    WorkloadKind("machinelearning.seldon.io", "SeldonDeployment"),
    *_owners("apps.nvidia.com", "NIMService", "NIMPipeline", "NIMCache"),
    *_owners("nvidia.com", "DynamoGraphDeployment", "DynamoComponentDeployment"),
    *_owners("grove.io", "PodClique", "PodCliqueSet", "PodCliqueScalingGroup"),
    *_owners("kaito.sh", "Workspace", "RAGEngine", "InferenceSet"),
    *_owners("kubevirt.io", "VirtualMachine", "VirtualMachineInstance", "VirtualMachineInstanceReplicaSet"),
    WorkloadKind("pool.kubevirt.io", "VirtualMachinePool"),
    *_owners("sparkoperator.k8s.io", "SparkApplication", "ScheduledSparkApplication", use=BATCH),
    *_owners("kubernetes.dask.org", "DaskCluster", "DaskJob", "DaskWorkerGroup"),
    WorkloadKind("flink.apache.org", "FlinkDeployment"),
    *_owners("tekton.dev", "TaskRun", "PipelineRun", use=BATCH),
    WorkloadKind("workload.codeflare.dev", "AppWrapper", BATCH),
    WorkloadKind("kaiwo.silogen.ai", "KaiwoJob", BATCH),
    WorkloadKind("kaiwo.silogen.ai", "KaiwoService"),
    *_owners(
        "run.ai", "RunaiJob", "TrainingWorkload", "InteractiveWorkload", "InferenceWorkload", "DistributedWorkload"
    ),
    # Kueue suspends the job of its Workload, and does not queue it again until it is active; then it may wait. If the
    # job itself were suspended, Kueue would resume it.
    WorkloadKind(
        "kueue.x-k8s.io", "Workload", is_owner=False, loss=Loss.PLACE_IN_QUEUE, suspended={"/spec/active": False}
    ),
    # KEDA would scale an owner up again, so it is told to keep it at 0; without the annotation it scales by its
    # triggers.
    WorkloadKind(
        "keda.sh",
        "ScaledObject",
        is_owner=False,
        loss=Loss.MEMORY,
        suspended={"/metadata/annotations/autoscaling.keda.sh~1paused-replicas": "0"},
    ),
)

KINDS: Mapping[tuple[str, str], WorkloadKind] = {(kind.group, kind.name): kind for kind in _ROWS}
"""By group and name."""
OWNERS = tuple(kind for kind in _ROWS if kind.is_owner and kind.name != "Pod")
"""What the analyzer reads to find the root owner of a pod. An owner of another kind is known by the name in the owner
reference; what owns it in turn is not."""
_BY_NAME: Mapping[str, WorkloadKind] = {kind.name: kind for kind in reversed(_ROWS)}
_UNKNOWN = WorkloadKind("", "", is_owner=False)
MAY_HIDE_A_JOB = ("RayCluster",)
"""Kinds that both people and jobs create. Where only pods can be read, the pods of a RayJob have this owner."""


def find_kind(name: str, group: str | None = None) -> WorkloadKind:
    """The row of a kind; without a group the first of its name. One that is not known has an empty row."""
    found = _BY_NAME.get(name) if group is None else KINDS.get((group, name))
    return found or _UNKNOWN


def list_names(use: WorkloadClass) -> tuple[str, ...]:
    """The names of the kinds of one class."""
    return tuple(dict.fromkeys(kind.name for kind in _ROWS if kind.use is use))


def find_class(kind: str) -> WorkloadClass:
    """A kind that is not known counts as a job: the longest window."""
    return find_kind(kind).use or BATCH


RUN_THROUGH_KINDS = list_names(BATCH)
"""Kinds whose pods are expected to work from start to end. Not Notebook, Deployment or StatefulSet: these wait for
people or requests."""
POOL_KINDS = tuple(kind.name for kind in _ROWS if kind.is_pool)


_SERVE_TOO = (
    *("InferenceGraph", "LLMInferenceService", "SeldonDeployment", "NIMService", "NIMPipeline", "InferenceSet"),
    *("DynamoGraphDeployment", "DynamoComponentDeployment", "KaiwoService", "InferenceWorkload"),
)
"""Kinds of inference services of which it is not known how people use them."""
SERVING_KINDS = (*list_names(SERVING), *_SERVE_TOO)
"""Kinds whose pods wait for requests. Not one that runs through, such as a training job with an engine inside."""


def may_be_job(kind: str) -> bool:
    """Whether an owner of this kind runs through, or may hide something that does; "" is unknown. Operators name their
    kinds after what they run: any kind that ends with Job is one."""
    return not kind or find_kind(kind).use is BATCH or kind in MAY_HIDE_A_JOB or kind.endswith("Job")
