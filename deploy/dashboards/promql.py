"""PromQL of the dashboards.

- `device`, `rate_of`: a signal of the GPUs under dcgm-exporter's names, which the agent exports too. Names and units of
  dcgm-exporter up to 4.8 and from 4.9 on are both read.
- `held`: the same for pods that hold a whole GPU, with the labels `node`, `namespace` and `pod`.
- `latest`: a metric of the analyzer; several replicas of it or of Prometheus count once.
"""

from collections.abc import Callable

from gpusteward.core.dcgm import DEFAULT_FIELDS, DcgmField, Unit

TO_BASE_UNIT = {
    Unit.PERCENT: " / 100",
    Unit.MEGAHERTZ: " * 1e6",
    Unit.MEBIBYTES: " * 1048576",
    Unit.MILLIJOULES: " / 1000",
    Unit.NVLINK_MEGABYTES_PER_SECOND: " * 1024000",
}
CLUSTER = 'cluster=~"$cluster"'
NAMESPACE = f'{CLUSTER}, namespace=~"$namespace"'
HOLDER = f'{NAMESPACE}, pod=~"$pod"'
NODE = f'{CLUSTER}, node=~"$node"'
NODE_GPU = f'{NODE}, gpu=~"$gpu"'
ANY_DEVICE = CLUSTER
DEVICE = f'{CLUSTER}, Hostname=~"$node|", hostname=~"$node|", gpu=~"$gpu"'
"""The label with the node is `Hostname` up to dcgm-exporter 4.8.2 and `hostname` later; a missing label matches `|`."""
WHOLE, MIG = 'GPU_I_ID=""', 'GPU_I_ID!=""'
BY_GPU = "cluster, Hostname, hostname, gpu"
BY_INSTANCE = f"{BY_GPU}, GPU_I_PROFILE, GPU_I_ID"
GPU_NAME = "{{Hostname}}{{hostname}} GPU {{gpu}}"
INSTANCE_NAME = f"{GPU_NAME} {{{{GPU_I_PROFILE}}}} instance {{{{GPU_I_ID}}}}"

EXPORTER_PODS = "(.*-)?(dcgm-exporter|gpusteward-agent)-.*"
"""Prometheus adds the labels of the scraped pod to series that have none: a GPU without holder is not held by these."""

_FIELDS = {field.signal: field for field in DEFAULT_FIELDS}


def device(signal: str, selector: str) -> str:
    """A gauge of the GPUs in its base unit."""
    return _join_names(_FIELDS[signal], lambda name: f"{name}{{{selector}}}")


def rate_of(signal: str, selector: str, window: str = "$__rate_interval") -> str:
    """The rate of a counter of the GPUs in its base unit."""
    return _join_names(_FIELDS[signal], lambda name: f"rate({name}{{{selector}}}[{window}])")


def _join_names(field: DcgmField, select: Callable[[str], str]) -> str:
    names = [field.name, *([field.v49_name] if field.v49_name else [])]
    parts = [select(name) + TO_BASE_UNIT.get(field.unit_of(name), "") for name in names]
    return f"({' or '.join(parts)})" if len(parts) > 1 else parts[0]


def per_gpu(signal: str, selector: str = DEVICE) -> str:
    """One value per GPU; exporters repeat values of the board on every MIG instance."""
    return f"max by ({BY_GPU}) ({device(signal, selector)})"


def memory_per_gpu(signal: str, selector: str = DEVICE) -> str:
    """One value per GPU. For GPUs with MIG dcgm-exporter has the instances only."""
    whole, parts = device(signal, f"{selector}, {WHOLE}"), device(signal, f"{selector}, {MIG}")
    return f"max by ({BY_GPU}) ({whole}) or sum by ({BY_GPU}) (max by ({BY_INSTANCE}) ({parts}))"


def utilization(selector: str) -> str:
    """Of every GPU and MIG instance. GPUs with MIG, and some sites, report engine activity instead."""
    return f"({device('utilization_ratio', selector)} or {device('gr_engine_ratio', selector)})"


def busy_per_device(selector: str) -> str:
    """One value per GPU without MIG and per MIG instance."""
    return f"max by ({BY_INSTANCE}, modelName) ({utilization(selector)})"


def held(signal: str, selector: str = HOLDER) -> str:
    """One value per namespace, pod, node and GPU, of GPUs that one pod holds."""
    plain = device(signal, f'{selector}, pod!~"{EXPORTER_PODS}", exported_pod=""')
    exported = selector.replace("namespace=", "exported_namespace=").replace("pod=", "exported_pod=")
    renamed = _rename(
        device(signal, f'{exported}, exported_pod!=""'), pod="exported_pod", namespace="exported_namespace"
    )
    both = name_node(f"({plain} or {renamed})")
    return f"max by (cluster, namespace, pod, node, gpu) ({both})"


def name_node(expression: str) -> str:
    """With the label `node`."""
    return _rename(_rename(expression, node="hostname"), node="Hostname")


def _rename(expression: str, **labels: str) -> str:
    for new, old in labels.items():
        expression = f'label_replace({expression}, "{new}", "$1", "{old}", "(.+)")'
    return expression


def used_by_pod(native: str, signal: str) -> str:
    """Use by pod and GPU from the agent; for pods that it does not see, the whole GPU from dcgm-exporter."""
    own = f'sum by (cluster, namespace, pod, node, gpu) ({native}{{{HOLDER}, by="container"}})'
    return f"{own} or on (namespace, pod) {held(signal)}"


def latest(metric: str, by: str, selector: str) -> str:
    """One value per group of labels, whichever replica exports it."""
    return f"max by ({by}) ({metric}{{{selector}}})"


def gpus(activity: str = "", selector: str = CLUSTER) -> str:
    """A number of GPUs, by the analyzer's verdicts."""
    chosen = f', activity=~"{activity}"' if activity else ""
    return f"sum({latest('gpusteward_analyzer_gpus', 'cluster, activity', selector + chosen)})"


def over_range(per_hour: str) -> str:
    """The amount of the time range, from an amount per hour. Time without a sample counts as nothing."""
    return f"sum_over_time(({per_hour})[$__range:5m]) / 12"
