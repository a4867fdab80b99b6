"""The foreign sites: each changes one thing of a simulated site. Numbers are those of issues of
dcgm-exporter, where people met it."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from tests.analyzer.sites.site_data import (
    BUSY_SITE,
    EMPTY,
    OTHER_NODE,
    PARKED,
    RESTING,
    Cluster,
    Gpu,
    Job,
    Labels,
    Point,
    add,
    dcgm,
    dcgm_device,
    dcgm_values,
    drop,
    hami,
    holder,
    keep,
    kubernetes_target,
    move,
    native,
    plain_target,
    rename,
    rename_metrics,
    unmapped,
    without,
)
from tests.analyzer.sources.faulty_engine import Fault, fails, stores_down

EAST = Cluster()
WEST = Cluster("b", (RESTING, OTHER_NODE))  # the same names of nodes and pods; what works in the east rests here
QUIET = Cluster(
    nodes=(RESTING, tuple(held and (held[0], PARKED if held[0] == "training-1" else EMPTY) for held in OTHER_NODE))
)
HOURS = 3600.0


FREE = Cluster("f", ((None,) * 8, (None,) * 8))
CPU = Cluster("x", ((), ()), ("cpu-1", "cpu-2"))
PODS = Cluster("p", ((), ()), ("training-0", "notebook-ada"))
"""Scraped pods instead of nodes."""


def _ended(age: float) -> Callable[[Gpu, float], Iterable[Point]]:
    """Pods held all GPUs until then."""

    def page(gpu: Gpu, at: float) -> Iterable[Point]:
        return dcgm(gpu._replace(pod=f"batch-{gpu.index}") if time.time() - at > age else gpu, at)

    return page


class Truth:
    """What is so, of all clusters of a site."""

    def __init__(self, clusters: Iterable[Cluster], gone: Iterable[str]) -> None:
        gpus = [gpu for cluster in clusters for gpu in cluster.gpus if gpu.node not in set(gone)]
        held = [gpu for gpu in gpus if gpu.pod]
        self.gpus, self.rows = len(gpus), len(held)
        self.pods = Counter((gpu.cluster.namespace, gpu.pod) for gpu in held)
        self.activities = Counter((gpu.pod, "active" if gpu.load.works else "idle") for gpu in held)
        self.nodes = Counter(Counter((gpu.cluster.key, gpu.node) for gpu in held).values())
        self._resting = {gpu.pod for gpu in held if not gpu.load.works}

    def works(self, pod: str) -> bool:
        return pod not in self._resting


@dataclass(frozen=True)
class Variant:
    """A site."""

    name: str
    change: str
    engines: tuple[tuple[Job, ...], ...] = ((Job(),),)
    cause: str = ""  # what a finding has to name, where not everything can be right
    cycles: tuple[float, ...] = ()  # ages of the cycles before the last one
    is_late: bool = False  # samples that come after the present are not there yet
    fault: Callable[[], Fault] | None = None  # None: an engine that fails is stopped
    engines_failing: int = 0  # in the last cycle
    skew: float = 0.0  # seconds that the clock of an engine is ahead
    settings: Mapping[str, object] = field(default_factory=dict)
    offered: tuple[tuple[str, Mapping[str, str]], ...] | None = None  # nodes of an API server; None: there is none
    gone: tuple[str, ...] = ()  # nodes that no longer exist
    gpus: int | None = None  # where it is not the number of a cluster

    @cached_property
    def truth(self) -> Truth:
        truth = Truth(dict.fromkeys(job.cluster for jobs in self.engines for job in jobs), self.gone)
        truth.gpus = truth.gpus if self.gpus is None else self.gpus
        return truth


def one(name: str, change: str, *rules: object, cause: str = "", **options: object) -> Variant:
    """One job in one engine."""
    of_site = {key: options.pop(key) for key in list(options) if key in Variant.__dataclass_fields__}
    return Variant(name, change, ((Job(rules=rules, **options),),), cause=cause, **of_site)  # type: ignore[arg-type]


PLAIN = {"target": plain_target}
HOLDER = {"exported_pod": "pod", "exported_namespace": "namespace", "exported_container": "container"}


def _pod_name_target(node: str) -> Labels:
    return {**plain_target(node), "pod_name": f"exporter-{node}", "pod_namespace": "gpu-operator"}


def _own_target(pod: str) -> Labels:
    """Of a pod with metrics of its own."""
    return {"pod": pod, "namespace": EAST.namespace, "container": "main", "instance": f"{pod}:8000"}


def _named(pod: str, namespace: str, container: str) -> object:
    return rename(pod=pod, namespace=namespace, container=container)


FEW = {"honor": True, "has_up": False}


def _map_exported(metric: str, labels: dict[str, str]) -> tuple[str, dict[str, str]]:
    return metric, labels | {name[9:]: value for name, value in labels.items() if name.startswith("exported_")}


def _on_node_1(name: str) -> object:
    """The holder is in this label there; `pod`: nowhere, that is the label of the target."""

    def change(metric: str, labels: dict[str, str]) -> tuple[str, dict[str, str]]:
        found = labels.get("exported_pod", "") if labels["Hostname"] == "gpu-node-1" else ""
        if not found:
            return metric, labels
        others = {each: value for each, value in labels.items() if each != "exported_pod"}
        return metric, others if name == "pod" else {**others, name: found}

    return change


LABELS = (
    one("kube-prometheus", "dcgm-exporter with a ServiceMonitor: `exported_pod`"),
    one("honor_labels", "`honor_labels: true`: a free GPU names the exporter's pod", honor=True),
    one("static job", "no labels of pods on the target: `pod`", **PLAIN),
    one("pod_name", "1.x: `pod_name`, `pod_namespace`", _named("pod_name", "pod_namespace", "container_name"), **PLAIN),
    one("PodName", "`PodName`, `NamespaceName`", _named("PodName", "NamespaceName", "ContainerName"), **PLAIN),
    one("job_pod_name", "`job_pod_name`", _named("job_pod_name", "job_pod_namespace", "job_container_name"), **PLAIN),
    one(
        "CloudWatch names",
        "`PodName`, `NamespaceName`, `NodeName`, `ClusterName`",
        rename(pod="PodName", namespace="NamespaceName", container="ContainerName", Hostname="NodeName"),
        add(ClusterName="prod"),
        **PLAIN,
    ),
    one("unknown pod label", "`workload_pod`", _named("workload_pod", "ns", "ctr"), cause="nobody known", **PLAIN),
    one(
        "moved with .+", "`exported_pod` moved to `pod`, if it is not empty", *(move(*each) for each in HOLDER.items())
    ),
    one(
        "pod_name of the exporter",
        "#78: the target has `pod_name`, the holder `pod`",
        target=lambda node: {**plain_target(node), "pod_name": f"dcgm-{node}", "node": node},
    ),
    one(
        "OpenTelemetry",
        "`k8s_pod_name` of the exporter, `k8s_cluster_name`",
        target=lambda node: {**plain_target(node), "k8s_pod_name": f"dcgm-{node}", "k8s_node_name": node},
        external=(("k8s_cluster_name", "prod"),),
    ),
    one(
        "pod_name and namespace of the exporter",
        "#78: the target has `pod_name` and `namespace`",
        target=lambda node: {**plain_target(node), "pod_name": f"dcgm-{node}", "namespace": "gpu-operator"},
    ),
    one(
        "pod_name, pod_namespace of the exporter",
        "the target has both, the holder `pod`",
        target=_pod_name_target,
    ),
    one("no pod", "`exported_pod` dropped, its namespace kept", drop("exported_pod"), cause="nobody known"),
    one("no pod, static job", "`pod` dropped, its namespace kept", drop("pod"), cause="nobody known", **PLAIN),
    Variant(
        "both honor_labels",
        "one job of each kind",
        (
            (
                Job(Cluster(nodes=(BUSY_SITE,), names=("gpu-node-1",)), honor=True, name="honours"),
                Job(Cluster("b", (OTHER_NODE,), ("gpu-node-2",)), name="renames"),
            ),
        ),
    ),
    one("all free", "nobody holds a GPU since 30 min", page=_ended(1800.0), cluster=FREE),
    one("never held", "nobody ever held one", cluster=FREE),
    Variant(
        "holders are scraped too",
        "one job with `honor_labels` for all pods, those of holders too",
        (
            (
                Job(name="kubernetes-pods", honor=True),
                Job(PODS, page=lambda *_: (), name="kubernetes-pods", target=_own_target),
            ),
        ),
    ),
    one("no job, honor_labels", "`job` dropped; a free GPU names the exporter's pod", drop("job"), honor=True),
    one("no job, no pods", "`job` dropped, no kubelet socket", drop("job"), page=unmapped, cause="nobody known"),
    one("no namespace", "`exported_namespace` dropped, its pod kept", drop("exported_namespace"), cause="namespace"),
    one("no namespace, static job", "`namespace` dropped", drop("namespace"), cause="namespace", **PLAIN),
    one("no pod-resources", "no kubelet socket: no pod labels", page=unmapped, cause="nobody known"),
    one("no pod-resources, all rest", "the same, and nobody works", page=unmapped, cluster=QUIET, cause="holder|pod"),
    one("empty pod labels", '3.x: `pod=""`, no socket', page=unmapped, honor=True, cause="nobody known"),
    one(
        "exporter holds all",
        "no socket, `honor_labels`, nobody works",
        page=unmapped,
        honor=True,
        cluster=QUIET,
        cause="exporter",
    ),
    one(
        "pod labels come and go",
        "#342: every other scrape has no pod",
        page=lambda gpu, at: dcgm(gpu, at) if at // 30 % 2 else unmapped(gpu, at),
        cause="samples are missing",
    ),
    one("query_condition", 'gpu-oour\'s `pod!=""` and a namespace', settings={"query_condition": '{namespace=~".+"}'}),
    one("otel holder", "`k8s_pod_name` is the holder", _named("k8s_pod_name", "k8s_ns", "c"), cause="nobody", **PLAIN),
    one("labelmap", "`labelmap: exported_(.+)`, both kept", _map_exported),
    one("holder only", "the target's `pod`, `namespace`, `container` dropped", drop("pod", "namespace", "container")),
    one("no container", "`exported_container` dropped", drop("exported_container")),
    one("no up, honor_labels", "remote write of GPU metrics only; a free GPU names the exporter", **FEW),
    one("no up, no job, honor_labels", "the same without `job`", drop("job"), **FEW),
    one("no up, moved with .+", "the same", *(move(*each) for each in HOLDER.items()), has_up=False),
    one(
        "no up, exporter holds all",
        "the same, no socket, nobody works",
        page=unmapped,
        cluster=QUIET,
        cause="names a pod",
        **FEW,
    ),
    one(
        "no pod on one node",
        "`exported_pod` dropped there, its namespace kept",
        _on_node_1("pod"),
        cause="nobody known",
    ),
    one(
        "PodName on one node",
        "`PodName` there, `exported_pod` on the other",
        _on_node_1("PodName"),
        cause="nobody known",
    ),
    one(
        "no socket on one node",
        "one of two has no kubelet socket",
        page=lambda gpu, at: unmapped(gpu, at) if gpu.node == "gpu-node-1" else dcgm(gpu, at),
        cause="nobody known",
    ),
    one(
        "only held GPUs",
        'series with `pod=""` are dropped; the API server counts GPUs',
        lambda metric, labels: (metric, labels) if labels.get("exported_pod") else None,
        offered=tuple((name, {"nvidia.com/gpu": "8"}) for name in EAST.names),
        cause="gpu.count",
    ),
    one(
        "odd names",
        "names with quotes, spaces, letters of other scripts",
        cluster=Cluster(namespace='team "β" \\ 研究'),
    ),
)


def _host(change: Callable[[str], str]) -> object:
    def apply(metric: str, labels: dict[str, str]) -> tuple[str, dict[str, str]]:
        return metric, {**labels, "Hostname": change(labels["Hostname"])}

    return apply


def _clone(*nodes: str) -> object:
    """The GPUs of these nodes have the UUID of their first one; without names, those of every node."""

    def change(metric: str, labels: dict[str, str]) -> tuple[str, dict[str, str]]:
        node = labels["Hostname"]
        return metric, {**labels, "UUID": f"GPU-{node}"} if not nodes or node in nodes else labels

    return change


def _anonymous(node: str) -> object:
    def change(metric: str, labels: dict[str, str]) -> tuple[str, dict[str, str]]:
        return drop("Hostname", "instance")(metric, labels) if labels["Hostname"] == node else (metric, labels)

    return change


NODES = (
    one("hostname", "4.8.3: `hostname`", rename(Hostname="hostname")),
    one("node", "`node` instead of `Hostname`", rename(Hostname="node")),
    one("instance only", "no label of the node but `instance`", drop("Hostname")),
    one("no node", "`Hostname` and `instance` dropped", drop("Hostname", "instance"), cause="node"),
    one("no node, static job", "the same, without labels of pods", drop("Hostname", "instance"), cause="node", **PLAIN),
    one("no node on one node", "both dropped there", _anonymous("gpu-node-1"), cause="node"),
    one("Hostname is a pod", "#78: `Hostname` is the exporter's pod", _host(lambda node: f"dcgm-{node[-1]}x2z")),
    one("Hostname localhost", "#572: `localhost` on every node", _host(lambda _: "localhost"), cause="localhost|node"),
    one("no UUID", "`UUID` dropped: node and `gpu`", drop("UUID"), cause="UUID"),
    one("PCI bus id only", "`UUID`, `gpu`, `device` dropped", drop("UUID", "gpu", "device"), cause="UUID"),
    one("device only", "`UUID`, `gpu`, `pci_bus_id` dropped", drop("UUID", "gpu", "pci_bus_id"), cause="UUID|identif"),
    one(
        "no identity",
        "no label tells the GPUs of a node apart",
        rename_metrics(lambda name: name),
        drop("UUID", "gpu", "pci_bus_id", "device"),
        cause="UUID|identif",
    ),
    one(
        "no UUID on localhost",
        "`UUID` dropped, `Hostname` is `localhost`",
        drop("UUID"),
        _host(lambda _: "localhost"),
        cause="UUID|two",
    ),
    one(
        "UUID on one node",
        "`UUID` dropped on the other node",
        lambda metric, labels: (
            metric,
            {name: value for name, value in labels.items() if name != "UUID" or labels["Hostname"] == "gpu-node-1"},
        ),
        cause="UUID",
    ),
    one("one UUID per node", "cloned virtual GPUs: all GPUs of a node have one UUID", _clone(), cause="one UUID"),
    one("one UUID on one node", "only those of one node", _clone("gpu-node-1"), cause="one UUID"),
    one("constant UUID", "relabeling writes the same `UUID` everywhere", add(UUID="GPU-0"), cause="one UUID"),
    one("one UUID, no index", "cloned virtual GPUs, `gpu` dropped", _clone(), drop("gpu"), cause="one UUID"),
    one("no model", "`modelName` dropped", drop("modelName")),
    one("no job", "`job` dropped", drop("job")),
    one("instance is the node", "`instance` relabelled to the node", target=lambda node: {"instance": node}),
    one(
        "one instance",
        "`instance` is the Service",
        target=lambda node: {**kubernetes_target(node), "instance": "dcgm-exporter"},
    ),
)


def _two(east: Labels, west: Labels, **options: object) -> tuple[tuple[Job, ...], ...]:
    """Two clusters in one engine."""
    jobs = [Job(cluster, external=tuple(labels.items()), **options) for cluster, labels in ((EAST, east), (WEST, west))]  # type: ignore[arg-type]
    return (tuple(jobs),)


def _same_uuids(metric: str, labels: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Cloned machines."""
    return metric, {**labels, "UUID": labels["UUID"].replace("GPU-a2", "GPU-a1")}


AGENT = Job(page=native, name="gpusteward-agent", target=plain_target)
PROD = (("cluster", "p"),)


def _address_twice(labels: Labels) -> tuple[tuple[str, str], ...]:
    return tuple(labels.items())


CLUSTERS = (
    Variant("cluster", "two clusters: `cluster`", _two({"cluster": "east"}, {"cluster": "west"})),
    Variant("cluster_name", "two: `cluster_name`", _two({"cluster_name": "east"}, {"cluster_name": "west"})),
    Variant("k8s_cluster_name", "two: `k8s_cluster_name`", _two({"k8s_cluster_name": "e"}, {"k8s_cluster_name": "w"})),
    Variant(
        "two cluster labels",
        "`cluster` in one, `cluster_name` in the other",
        _two({"cluster": "e"}, {"cluster_name": "w"}),
    ),
    Variant("one cluster label", "one of two names itself", _two({"cluster": "east"}, {})),
    Variant("unknown cluster label", "two: `site`", _two({"site": "east"}, {"site": "west"}), cause="two nodes|pod"),
    Variant("no cluster label", "two clusters, nothing tells them apart", _two({}, {}), cause="two nodes|pod"),
    Variant(
        "same cluster label", "two clusters of one name", _two({"cluster": "p"}, {"cluster": "p"}), cause="two nodes"
    ),
    Variant(
        "cluster of one job",
        "two jobs scrape the same GPUs, one names the cluster",
        ((Job(), Job(name="named", rules=(add(cluster="prod"),))),),
        cause="two clusters",
    ),
    Variant(
        "two names of a cluster",
        "two jobs scrape the same GPUs and name it differently",
        (tuple(Job(name=name, rules=(add(cluster=name),)) for name in ("prod", "dev")),),
        cause="two clusters",
    ),
    Variant(
        "cluster of one engine",
        "two engines have the same GPUs, one names the cluster",
        ((Job(),), (Job(external=(("cluster", "prod"),)),)),
        cause="two clusters",
    ),
    Variant(
        "two names of nodes",
        "two engines have the same GPUs, one has dropped `Hostname`",
        ((Job(),), (Job(rules=(drop("Hostname"),)),)),
        cause="different names",
    ),
    Variant("two engines", "a cluster in each, no label", ((Job(EAST),), (Job(WEST),))),
    Variant(
        "two engines of one name",
        "two clusters, both are called `p`",
        ((Job(EAST, external=PROD),), (Job(WEST, external=PROD),)),
        cause="two clusters",
    ),
    Variant(
        "two engines of one name, other nodes",
        "the same, nodes have other names",
        ((Job(EAST, external=PROD),), (Job(replace(WEST, names=("gpu-node-3", "gpu-node-4")), external=PROD),)),
        cause="two clusters",
    ),
    Variant(
        "replicas of one name, two urls", "the same Prometheus twice", ((Job(external=PROD),), (Job(external=PROD),))
    ),
    Variant(
        "a replica stopped",
        "two replicas without deduplication, one ended 6 min ago",
        (
            (
                Job(external=(("replica", "a"),)),
                Job(external=(("replica", "b"),), up=lambda _, age: 1.0 if age > 360 else None),
            ),
        ),
    ),
    Variant(
        "replicas of agents",
        "the agent's series twice",
        (tuple(replace(AGENT, external=(("replica", x),)) for x in "ab"),),
    ),
    Variant(
        "same name, other location",
        "GKE: `cluster` alike, `location` differs",
        _two({"cluster": "p", "location": "us"}, {"cluster": "p", "location": "eu"}),
        cause="two nodes",
    ),
    Variant("two replicas, two urls", "the same Prometheus twice in `url`", ((Job(),), (Job(),))),
    Variant(
        "one of two engines down",
        "known before, then stopped",
        ((Job(EAST),), (Job(WEST),)),
        cause="engine|127.0.0.1",
        cycles=(300.0,),
        engines_failing=1,
    ),
    Variant("one of two empty", "the second tenant has no series", ((Job(EAST),), ()), cause="no series", gpus=16),
    Variant(
        "HA replicas",
        "two replicas without deduplication: `prometheus_replica`",
        (tuple(Job(external=(("prometheus_replica", f"prometheus-k8s-{number}"),)) for number in range(2)),),
    ),
    Variant(
        "scraped twice",
        "by a ServiceMonitor and by annotations of the pod",
        ((Job(), Job(name="kubernetes-pods", target=lambda node: {**kubernetes_target(node), "app": "dcgm"})),),
    ),
    Variant(
        "two exporters",
        "gmt #174: one knows pods, one does not",
        ((Job(), Job(name="dcgm-host", page=unmapped, target=plain_target)),),
    ),
    one("federation", "`job` and `instance` kept, `up` is that of the federation", has_up=False),
    one("same UUID on two nodes", "cloned machines", _same_uuids, cause="two nodes"),
    Variant(
        "pod on two nodes",
        "two namespaces with the same name: a second cluster of one node",
        ((Job(), Job(Cluster("c", (BUSY_SITE,), ("gpu-node-3",)))),),
        cause="two nodes|pod",
    ),
    one("GPU-less cluster", "the engine has no GPU metrics", keep("none"), cause="No GPU"),
    one(
        "scaled to zero",
        "no node offers GPUs, says the API server",
        keep("none"),
        offered=(("cpu-1", {"cpu": "8"}),),
        gone=EAST.names,
    ),
    one(
        "GPU nodes without exporter",
        "the API server shows nodes with GPUs",
        keep("none"),
        offered=(("gpu-node-1", {"nvidia.com/gpu": "8"}),),
        cause="gpu-node-1",
    ),
)


def _gone(age: float, *nodes: str, is_removed: bool = False) -> Callable[[str, float], float | None]:
    """These nodes stop `age` seconds ago."""

    def up(node: str, now: float) -> float | None:
        return 1.0 if node not in nodes or now > age else None if is_removed else 0.0

    return up


def _replaced(gpu: Gpu, at: float) -> Iterable[Point]:
    return dcgm(gpu._replace(pod=f"{gpu.pod}-old") if gpu.pod and time.time() - at > 900 else gpu, at)


def _restarted(gpu: Gpu, at: float) -> Iterator[Point]:
    name = f"dcgm-{gpu.node[-1]}" + ("old" if time.time() - at > 120 else "new")
    return ((metric, {**labels, "Hostname": name}, value) for metric, labels, value in dcgm(gpu, at))


TIME = (
    one("up 0", "all exporters fail since 20 min", up=_gone(1200, *EAST.names), cause="report", cycles=(1500,)),
    one("up 0 at start", "the same, the analyzer starts now", up=_gone(1200, *EAST.names), cause="nvidia-dcgm"),
    one(
        "exporters gone",
        "targets removed 20 min ago",
        up=_gone(1200, *EAST.names, is_removed=True),
        cause="report",
        cycles=(1500,),
    ),
    one(
        "one exporter fails",
        "one of two since 2 min",
        up=_gone(120, "gpu-node-2"),
        cause="gpu-node-2|10.0.2.7",
        cycles=(300,),
    ),
    one(
        "one fails for 20 min",
        "one of two since 20 min",
        up=_gone(1200, "gpu-node-2"),
        cause="gpu-node-2|10.0.2.7",
        cycles=(1500, 600, 300),
    ),
    one(
        "one fails at start",
        "the same, the analyzer starts now",
        up=_gone(1200, "gpu-node-2"),
        cause="10.0.2.7|gpu-node-2",
    ),
    one(
        "empty pages",
        "one of two exporters is up and reports nothing since 20 min",
        value=lambda _, gpu, age, value: None if age < 1200 and gpu.node == "gpu-node-2" else value,
        cause="10.0.2.7",
    ),
    one("flapping", "every third scrape fails", up=lambda _, age: float(age % 90 >= 30), cause="judged"),
    one("never worked", "one of two exporters fails since ever", up=_gone(9 * HOURS, "gpu-node-2"), cause="10.0.2.7"),
    Variant(
        "annotations job",
        "one job for all pods of the cluster; another kind of exporter is down",
        (
            (
                Job(name="kubernetes-pods"),
                Job(CPU, page=lambda *_: (), name="kubernetes-pods", target=plain_target, up=lambda *_: 0.0),
                Job(CPU, page=lambda *_: (), name="kubernetes-pods", target=lambda node: {"instance": f"{node}:1"}),
            ),
        ),
    ),
    one(
        "GPU lost",
        "one GPU has fallen off the bus 7 min ago",
        value=lambda _, gpu, age, value: None if age < 420 and (gpu.node, gpu.index) == ("gpu-node-1", 5) else value,
        cycles=(660.0,),
        cause="current sample",
    ),
    one("pods replaced", "other pods on the same GPUs since 15 min", page=_replaced),
    one(
        "exporters restarted",
        "2 min ago; `Hostname` is their pod, and no end of series is written",
        page=_restarted,
        cause="two nodes",
    ),
    one(
        "node removed",
        "one of two nodes left the cluster 2 h ago",
        up=_gone(2 * HOURS, "gpu-node-2", is_removed=True),
        gone=("gpu-node-2",),
    ),
    one(
        "old data",
        "the newest sample is 20 min old at the start",
        up=lambda _, age: 1.0 if age > 1200 else None,
        cause="GPU",
    ),
    one("data of 2 min", "exporters and engine are new", up=lambda _, age: 1.0 if age < 120 else None, cause="judged"),
    one("gap", "no samples from 8 to 4 min ago", up=lambda _, age: None if 240 < age < 480 else 1.0, cause="judged"),
    *(
        one(
            f"lag {seconds} s",
            f"remote write is {seconds} s late",
            lag=lambda _node, _now, seconds=seconds: seconds,
            is_late=True,
            cycles=(600.0, 300.0),
        )
        for seconds in (60, 120, 180)
    ),
    one(
        "growing lag",
        "remote write falls behind: 200 s, 400 s, 600 s",
        up=lambda _, age: 1.0 if age > 600 else None,
        is_late=True,
        cycles=(400.0, 200.0),
        cause="report|judged",
    ),
    one(
        "one node is late",
        "one of two by 180 s",
        lag=lambda node, _: 180.0 if node == "gpu-node-2" else 0.0,
        is_late=True,
        cycles=(600.0, 300.0),
        cause="judged|gpu-node-2|10.0.2.7",
    ),
    one(
        "lag without up",
        "remote write of GPU metrics only, 120 s late",
        has_up=False,
        lag=lambda *_: 120.0,
        is_late=True,
        cycles=(600.0, 300.0),
    ),
    one("half hour", "no samples from 50 to 20 min ago", up=lambda _, age: None if 1200 < age < 3000 else 1.0),
    one("every 300 s", "scrape interval 300 s", step=lambda _: 300.0, cause="judged"),
    *(one(f"every {step} s", f"scrape interval {step} s", step=lambda _, step=step: step) for step in (15, 60, 120)),
    one("mixed intervals", "15 s and 60 s in one job", step=lambda node: 15.0 if node == "gpu-node-1" else 60.0),
)


def _virtual(gpu: Gpu, at: float) -> Iterator[Point]:
    """Time-slicing with virtual GPUs: the pods of two GPUs are on the first one, with the values of the GPU."""
    if gpu.index == 5 and gpu.node == "gpu-node-1":
        first = next(each for each in gpu.cluster.gpus if (each.node, each.index) == (gpu.node, 4))
        labels = {**dcgm_device(first), **holder(gpu)}
        return ((f"DCGM_FI_{name}", labels, value) for name, value in dcgm_values(first, at).items())
    return iter(dcgm(gpu, at))


def _mig(gpu: Gpu, at: float) -> Iterator[Point]:
    """The pods of two GPUs are on instances of the first one, which have profiling fields."""
    if gpu.index not in (4, 5) or gpu.node != "gpu-node-1":
        yield from dcgm(gpu, at)
        return
    first = next(each for each in gpu.cluster.gpus if (each.node, each.index) == (gpu.node, 4))
    labels = {**dcgm_device(first), "GPU_I_PROFILE": "3g.40gb", "GPU_I_ID": str(gpu.index - 3), **holder(gpu)}
    for name, value in dcgm_values(gpu, at).items():
        if name.startswith(("PROF", "DEV_FB")):
            yield f"DCGM_FI_{name}", labels, value


def _mig_without_profiling(gpu: Gpu, at: float) -> Iterator[Point]:
    return (point for point in _mig(gpu, at) if "PROF" not in point[0])


def _video(gpu: Gpu, at: float) -> Iterator[Point]:
    """Some pods use the video engines only."""
    encodes = gpu.pod in ("embed-5c8b7-k4k4w", "rerank-0")
    changed = {"ENC_UTIL": 60.0, "GPU_UTIL": 0.0, "MEM_COPY_UTIL": 0.0, "POWER_USAGE": 95.0, "PROF": 0.0}
    for metric, labels, value in dcgm(gpu, at):
        yield metric, labels, next((new for part, new in changed.items() if encodes and part in metric), value)


def _both_names(gpu: Gpu, at: float) -> Iterator[Point]:
    for metric, labels, value in dcgm(gpu, at):
        yield metric, labels, value
        if _v49(metric) != metric:
            yield _v49(metric), labels, value


def _v49(name: str) -> str:
    """The names of dcgm-exporter 4.9 whose units are the same."""
    return {
        "DCGM_FI_DEV_POWER_USAGE": "DCGM_FI_DEV_BOARD_POWER_WATTS",
        "DCGM_FI_DEV_GPU_TEMP": "DCGM_FI_DEV_GPU_TEMP_CELSIUS",
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO",
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "DCGM_FI_PROF_TENSOR_UTIL_RATIO",
        "DCGM_FI_PROF_DRAM_ACTIVE": "DCGM_FI_PROF_DRAM_UTIL_RATIO",
    }.get(name, name)


_OLD = {
    "DCGM_FI_DEV_GPU_UTIL": "dcgm_gpu_utilization",
    "DCGM_FI_DEV_MEM_COPY_UTIL": "dcgm_mem_copy_utilization",
    "DCGM_FI_DEV_ENC_UTIL": "dcgm_enc_utilization",
    "DCGM_FI_DEV_DEC_UTIL": "dcgm_dec_utilization",
    "DCGM_FI_DEV_FB_USED": "dcgm_fb_used",
    "DCGM_FI_DEV_FB_FREE": "dcgm_fb_free",
    "DCGM_FI_DEV_POWER_USAGE": "dcgm_power_usage",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "dcgm_total_energy_consumption",
}


def _less_on_node_2(metric: str, labels: dict[str, str]) -> tuple[str, dict[str, str]] | None:
    is_left_out = labels["Hostname"] == "gpu-node-2" and ("GPU_UTIL" in metric or "PROF" in metric)
    return None if is_left_out else (metric, labels)


METRICS = (
    one("4.9 names", "DCGM 4.7 names of profiling fields, power, temperature", rename_metrics(_v49)),
    one("1.x names", "`dcgm_gpu_utilization`", rename_metrics(lambda name: _OLD.get(name, "")), cause="No GPU"),
    one("prefix", "`nvidia_DCGM_FI_...`", rename_metrics("nvidia_{}".format), cause="No GPU"),
    one("lower case", "`dcgm_fi_dev_gpu_util`", rename_metrics(str.lower), cause="No GPU"),
    one("recording rules only", "`job:DCGM_FI_DEV_GPU_UTIL:avg`", rename_metrics("job:{}:avg".format), cause="record"),
    one("stream aggregation", "`DCGM_FI_DEV_GPU_UTIL:1m_avg`", rename_metrics("{}:1m_avg".format), cause="record"),
    one("gauges only", "no profiling fields", without("PROF")),
    one("profiling only", "no `DCGM_FI_DEV_*` but memory", keep("PROF", "FB_")),
    one("profiling alone", "no `DCGM_FI_DEV_*` at all", keep("PROF")),
    one("no ENC, DEC", "no video fields", without("ENC_UTIL", "DEC_UTIL")),
    one("one field on one node", "`GPU_UTIL` and profiling fields dropped there", _less_on_node_2, cause="judged"),
    one(
        "recorded without device",
        "rules sum by pod under the names of the metrics",
        drop("UUID", "gpu", "device", "pci_bus_id", "Hostname", "instance", "modelName"),
        cause="identity",
    ),
    one("no power", "neither power nor energy", without("POWER", "ENERGY")),
    one("energy only", "no utilization, no profiling", keep("ENERGY", "FB_"), cause="judged"),
    one("power only", "no other field", keep("POWER"), cause="judged"),
    one("temperature only", "nothing that shows use", keep("TEMP"), cause="No GPU"),
    one("no memory", "no framebuffer fields", without("FB_")),
    one("MIG", "two pods on instances of one GPU", page=_mig, gpus=15),
    one(
        "MIG without profiling",
        "the same with gauges only",
        page=_mig_without_profiling,
        gpus=15,
        cause="GR_ENGINE_ACTIVE",
    ),
    one("time-slicing", "virtual GPUs: two pods, one value", page=_virtual, gpus=15, cause="several pods"),
    one(
        "video without fields",
        "two pods only encode, no video fields",
        without("ENC_UTIL", "DEC_UTIL"),
        page=_video,
        cause="video|ENC_UTIL",
    ),
    one("video", "two pods only encode", page=_video),
    one("old and new names", "4.9 and earlier names at once", page=_both_names),
    Variant(
        "HAMi",
        "its monitor, and dcgm-exporter without pods",
        ((Job(page=hami, name="hami", target=plain_target), Job(page=unmapped)),),
    ),
    Variant("agent", "gpusteward's agent alone", ((AGENT,),)),
    Variant(
        "agent, one UUID per node",
        "cloned virtual GPUs",
        ((replace(AGENT, rules=(add(uuid="GPU-0"),)),),),
        cause="one UUID",
    ),
    Variant("agent, honor_labels off", "scraped as a pod", ((replace(AGENT, target=kubernetes_target),),)),
    Variant("agent, pod_name", "`pod_name` is the agent's own pod", ((replace(AGENT, target=_pod_name_target),),)),
    Variant(
        "HAMi, pod_name",
        "`pod_name` is the pod of its monitor",
        ((Job(page=hami, name="hami", target=_pod_name_target), Job(page=unmapped)),),
    ),
    Variant(
        "agent, cluster of dcgm-exporter",
        "both on every node; only one names the cluster",
        ((AGENT, Job(rules=(add(cluster="prod"),))),),
        cause="two clusters",
    ),
    Variant("agent and dcgm-exporter", "both on every node", ((AGENT, Job()),)),
    Variant(
        "agent on one node",
        "dcgm-exporter on the other",
        ((replace(AGENT, up=_gone(9 * HOURS, "gpu-node-2", is_removed=True)), Job()),),
    ),
)


def _values(metric: str, change: Callable[[Gpu, float, float], float | None]) -> Callable[..., float | None]:
    def apply(name: str, gpu: Gpu, age: float, value: float) -> float | None:
        return change(gpu, age, value) if metric in name else value

    return apply


def _is_idle_sample(gpu: Gpu, age: float) -> bool:
    """One sample of the window of idle GPUs."""
    return not gpu.load.works and 200 < age <= 230


NAN = float("nan")
VALUES = (
    one(
        "NaN",
        "`GPU_UTIL` NaN on idle GPUs, once",
        value=_values("GPU_UTIL", lambda g, a, v: NAN if _is_idle_sample(g, a) else v),
        cause="usable sample",
    ),
    one(
        "always NaN",
        "`GPU_UTIL` NaN, no profiling",
        without("PROF"),
        value=_values("GPU_UTIL", lambda *_: NAN),
        cause="judged",
    ),
    one(
        "-1",
        "`GPU_UTIL` -1 where it is not supported",
        without("PROF"),
        value=_values("GPU_UTIL", lambda *_: -1.0),
        cause="judged",
    ),
    one(
        "blank",
        "DCGM's INT32 blank 2147483632",
        without("PROF"),
        value=_values("GPU_UTIL", lambda *_: 2147483632.0),
        cause="judged",
    ),
    one("blank INT64", "blank energy 9223372036854775792", value=_values("ENERGY", lambda *_: 9223372036854775792.0)),
    one(
        "blank FP64",
        "blank power 140737488355328",
        value=_values("POWER", lambda *_: 140737488355328.0),
        cause="judged",
    ),
    one(
        "spike",
        "#418: one `GPU_UTIL` of 808334905 on idle GPUs",
        without("PROF"),
        value=_values("GPU_UTIL", lambda g, a, v: 808334905.0 if _is_idle_sample(g, a) else v),
        cause="judged",
    ),
    one(
        "profiling stops at 0", "#635: profiling fields are 0 on GPUs that work", value=_values("PROF", lambda *_: 0.0)
    ),
    one("utilization stops at 0", "`GPU_UTIL` 0 on GPUs that work", value=_values("GPU_UTIL", lambda *_: 0.0)),
    one(
        "counters reset",
        "energy begins again at 0, 5 min ago",
        value=_values("ENERGY", lambda g, a, v: v if a > 300 else 1000 * g.load.watts * (300 - a)),
    ),
)


def _half_of_queries() -> Fault:
    """Every second query about a window."""
    refuse, number = fails("_over_time("), [0]

    def fail(handler: object, expression: str) -> bool:
        if "_over_time(" not in expression:
            return False
        number[0] += 1
        return bool(number[0] % 2) and refuse(handler, expression)  # type: ignore[arg-type]

    return fail


ENGINES = (
    Variant(
        "half of the queries",
        "every second window query gets 503",
        fault=_half_of_queries,
        engines_failing=1,
        cycles=(300.0,),
        cause="could not be read",
    ),
    Variant(
        "half at start", "the same at the start", fault=_half_of_queries, engines_failing=1, cause="could not be read"
    ),
    Variant(
        "no counting",
        "queries of `up` get 422",
        fault=lambda: fails("up{", status=422),
        engines_failing=1,
        cause="HTTP 422",
    ),
    Variant("engine down", "known before, then stopped", engines_failing=1, cycles=(300.0,), cause="cannot be read"),
    Variant("engine down at start", "never reached", engines_failing=1, cause="upstream is gone"),
    Variant(
        "wrong tenant",
        "401: no org id",
        fault=lambda: fails("", status=401, body=b"no org id"),
        engines_failing=1,
        cause="no org id",
    ),
    Variant("clock of the engine", "2 min ahead", skew=120.0, cause="clocks"),
    Variant(
        "a store of Thanos is down",
        "partial responses without one node",
        fault=lambda: stores_down("store-2:10901", lost="gpu-node-2"),
        engines_failing=1,
        cycles=(300.0,),
        cause="store-2",
    ),
    Variant("empty tenant", "the engine has no series at all", ((),), cause="no series", gpus=16),
)

VARIANTS = (*LABELS, *NODES, *CLUSTERS, *TIME, *METRICS, *VALUES, *ENGINES)
