"""The kinds of objects that own pods with GPUs, directly or through others, by API group.

The ClusterRole in deploy/manifests/analyzer.yaml allows to read exactly these. An owner of another kind is known by the
name in the owner reference; what owns it in turn is not.
"""

from collections.abc import Mapping

OWNER_KINDS: Mapping[str, tuple[str, ...]] = {
    "": ("ReplicationController",),
    "apps": ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"),
    "batch": ("Job", "CronJob"),
    "apps.openshift.io": ("DeploymentConfig",),
    "apps.kruise.io": ("CloneSet", "StatefulSet", "DaemonSet", "BroadcastJob", "AdvancedCronJob"),
    "argoproj.io": ("Rollout", "Workflow", "CronWorkflow"),
    "batch.volcano.sh": ("Job", "CronJob"),
    "flow.volcano.sh": ("JobFlow",),
    "jobset.x-k8s.io": ("JobSet",),
    "leaderworkerset.x-k8s.io": ("LeaderWorkerSet",),
    "kubeflow.org": (
        *("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "MXJob", "JAXJob"),
        *("Notebook", "Workspace", "Experiment", "Trial"),
    ),
    "trainer.kubeflow.org": ("TrainJob",),
    "training.kubedl.io": ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob"),
    "ray.io": ("RayJob", "RayCluster", "RayService", "RayCronJob"),
    "serving.kserve.io": ("InferenceService", "InferenceGraph", "LLMInferenceService"),
    "serving.knative.dev": ("Service", "Configuration", "Revision"),
    "machinelearning.seldon.io": ("SeldonDeployment",),
    "apps.nvidia.com": ("NIMService", "NIMPipeline", "NIMCache"),
    "nvidia.com": ("DynamoGraphDeployment", "DynamoComponentDeployment"),
    "grove.io": ("PodClique", "PodCliqueSet", "PodCliqueScalingGroup"),
    "kaito.sh": ("Workspace", "RAGEngine", "InferenceSet"),
    "kubevirt.io": ("VirtualMachine", "VirtualMachineInstance", "VirtualMachineInstanceReplicaSet"),
    "pool.kubevirt.io": ("VirtualMachinePool",),
    "sparkoperator.k8s.io": ("SparkApplication", "ScheduledSparkApplication"),
    "kubernetes.dask.org": ("DaskCluster", "DaskJob", "DaskWorkerGroup"),
    "flink.apache.org": ("FlinkDeployment",),
    "tekton.dev": ("TaskRun", "PipelineRun"),
    "workload.codeflare.dev": ("AppWrapper",),
    "kaiwo.silogen.ai": ("KaiwoJob", "KaiwoService"),
    "run.ai": ("RunaiJob", "TrainingWorkload", "InteractiveWorkload", "InferenceWorkload", "DistributedWorkload"),
}


def is_readable(group: str, kind: str) -> bool:
    """Whether the analyzer may read objects of this kind. A pod can own others: those of a LeaderWorkerSet do."""
    return kind in OWNER_KINDS.get(group, ()) or (group, kind) == ("", "Pod")
