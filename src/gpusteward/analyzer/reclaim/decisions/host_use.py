"""What the pods that would stop do on their hosts: CPU, disk and network, against the idleness of their GPUs.

A job that loads data, a notebook that computes on its cores and a server that sends files hold GPUs that are idle by
every signal of the GPU. What they do on their hosts does not prove that a GPU is used, but it is a reason not to stop
them. Little use proves nothing: NFS, Lustre and RDMA are in no counter. So a signal that is not there refuses nothing,
and the answer of the guard names it.

It is read for the workloads that would be warned about or acted on in a cycle, all together in one call, and of all
pods that would stop, with GPUs and without. Also for some that are refused because pods without GPUs would stop: who
decides about these sees what they do.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from gpusteward.analyzer.settings.reclaim import HostSettings
from gpusteward.analyzer.sources.live_readings import HostUse
from gpusteward.analyzer.sources.usage.query_results import PodKey
from gpusteward.analyzer.sources.usage_source import UsageSource
from gpusteward.core.errors import SourceError
from gpusteward.core.messages import Message
from gpusteward.messages import reclaim as messages


class HostSignal(StrEnum):
    """In the order of the fields of `HostUse`. The values are public: they are in metrics and in `reclaim status`."""

    CPU = "cpu"
    DISK = "disk"
    NETWORK = "network"


class HostTotal(NamedTuple):
    """One signal of all pods of a workload."""

    signal: HostSignal
    amount: float | None  # of those where it is known, together; None: it is known of none
    least: float  # from here on it is work
    busiest: str  # the pod that has the most of it
    unknown: int  # pods where it is not known

    @property
    def is_work(self) -> bool:
        return self.amount is not None and self.amount >= self.least


class HostReading(NamedTuple):
    """Of one workload."""

    pods: int
    seconds: float
    totals: tuple[HostTotal, ...] = ()
    error: Message | None = None  # why it could not be read
    by_pod: Mapping[str, HostUse] = {}  # by name; of one that is missing nothing is known

    @property
    def work(self) -> list[HostTotal]:
        """The signals that show work."""
        return [total for total in self.totals if total.is_work]


def read_host_readings(
    source: UsageSource | None, workloads: Sequence[Sequence[PodKey]], *, at: float, limits: HostSettings
) -> list[HostReading]:
    """Of each of these workloads, given by its pods. Never raises."""
    pods = {pod for each in workloads for pod in each}
    if not pods:
        return [HostReading(0, limits.seconds) for _ in workloads]
    if source is None:
        return [HostReading(len(each), limits.seconds, error=messages.NO_USAGE_SOURCE) for each in workloads]
    try:
        found = source.read_host_use(pods, at, seconds=limits.seconds)
    except SourceError as error:
        return [HostReading(len(each), limits.seconds, error=error.as_message()) for each in workloads]
    least = (limits.cpu_cores, limits.disk_bytes_per_second, limits.network_bytes_per_second)
    readings = []
    for each in workloads:
        uses = [(pod.name, found.get(pod, HostUse())) for pod in each]
        totals = tuple(
            _add_up(signal, [(name, use[number]) for name, use in uses], least=least[number])
            for number, signal in enumerate(HostSignal)
        )
        readings.append(HostReading(len(each), limits.seconds, totals, by_pod=dict(uses)))
    return readings


def _add_up(signal: HostSignal, values: Sequence[tuple[str, float | None]], *, least: float) -> HostTotal:
    known = [(value, name) for name, value in values if value is not None]
    amount = sum(value for value, _ in known) if known else None
    busiest = max(known)[1] if known else ""
    return HostTotal(signal, amount, least, busiest, len(values) - len(known))
