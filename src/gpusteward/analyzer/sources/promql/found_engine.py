"""An engine whose address is not set: its Service is found by label, and looked up again after a failed cycle."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from gpusteward.analyzer.sources.engine.service_discovery import EngineService
from gpusteward.analyzer.sources.gpu_readings import ReportedGpu
from gpusteward.analyzer.sources.pod_processes import Pod, PodProcesses
from gpusteward.analyzer.sources.usage_source import Chart, CountingSource
from gpusteward.analyzer.tables import UsageTable
from gpusteward.core.errors import SourceError
from gpusteward.core.usages import AllocationKey
from gpusteward.logs import Log
from gpusteward.messages.errors import source_errors

log = Log(__name__)


class FoundEngine:
    """A `UsageSource`. `find` raises SourceError; `open_engine` makes the source of an address."""

    def __init__(self, find: Callable[[], EngineService], open_engine: Callable[[str], CountingSource]) -> None:
        self._find, self._open_engine = find, open_engine
        self._service: EngineService | None = None
        self._engine: CountingSource | None = None
        self._must_find = True
        self._error = ""
        self._closed_counts = Counter[str](ok=0, failed=0)

    @property
    def request_counts(self) -> Mapping[str, int]:
        return self._closed_counts + Counter(self._engine.request_counts if self._engine else {})

    @property
    def target_counts(self) -> Mapping[str, int]:
        return {}

    def read(self, at: float) -> UsageTable:
        """Raises SourceError, also if the Service is not found."""
        if self._must_find:
            self._connect()
        try:
            return self._connected().read(at)
        except SourceError:
            self._must_find = True
            raise

    def read_series(self, allocation: AllocationKey, at: float, *, seconds: float) -> Chart:
        return self._connected().read_series(allocation, at, seconds=seconds)

    def read_work(self, allocations: Sequence[AllocationKey], at: float, *, seconds: float) -> Sequence[Chart]:
        return self._connected().read_work(allocations, at, seconds=seconds)

    def read_processes(self, pods: Collection[Pod], at: float) -> PodProcesses:
        return self._connected().read_processes(pods, at)

    def read_gpus(self, node: str, cluster: str, at: float) -> Sequence[ReportedGpu]:
        return self._connected().read_gpus(node, cluster, at)

    def describe(self) -> Mapping[str, Any]:
        """As of the engine, and which Service it is."""
        found = {"service": str(self._service)} if self._service else {}
        failures = {"failures": {"service": self._error}} if self._error else {}
        return {**(self._engine.describe() if self._engine else {}), **found, **failures}

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()

    def _connect(self) -> None:
        """Raises SourceError. A Service that was used and is still the only one keeps its connections."""
        try:
            service = self._find()
        except SourceError as error:
            self._error = str(error)
            raise
        self._error, self._must_find = "", False
        if service == self._service:
            return
        log.info("engine_found", service=service, url=service.url)
        if self._engine is not None:
            self._engine.close()
            self._closed_counts.update(self._engine.request_counts)
        self._service, self._engine = service, self._open_engine(service.url)

    def _connected(self) -> CountingSource:
        if self._engine is None:
            raise SourceError(source_errors.ENGINE_NOT_FOUND)
        return self._engine
