"""Distributed engines as processes on free loopback ports, from the folder that `make components-engines` fills."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.agent.test_agent_process import free_port
from tests.analyzer.engines import RunningEngine, Sample, import_samples, run_engine
from tests.analyzer.remote_write import write_samples

FOLDER = Path(os.environ.get("GPUSTEWARD_ENGINES", ""))
TENANT = {"X-Scope-OrgID": "platform"}


@contextmanager
def running_victoria(folder: Path, samples: Iterable[Sample]) -> Iterator[RunningEngine]:
    """VictoriaMetrics of a current version, with the samples imported."""
    address = f"127.0.0.1:{free_port()}"
    flags = (f"-storageDataPath={folder}/data", f"-httpListenAddr={address}", "-retentionPeriod=1y")
    with run_engine([str(FOLDER / "victoria-metrics"), *flags], f"http://{address}", "/health") as engine:
        import_samples(engine.url, samples)
        yield engine


@contextmanager
def running_sidecar(prometheus: RunningEngine, folder: Path) -> Iterator[tuple[RunningEngine, str]]:
    """A Thanos sidecar of this Prometheus, and the address of its store API."""
    store, address = (f"127.0.0.1:{free_port()}" for _ in range(2))
    flags = (f"--prometheus.url={prometheus.url}", f"--tsdb.path={folder}/data")
    listen = (f"--grpc-address={store}", f"--http-address={address}")
    with run_engine([str(FOLDER / "thanos"), "sidecar", *flags, *listen], f"http://{address}", "/-/ready") as engine:
        yield engine, store


@contextmanager
def running_query(stores: Sequence[str], *flags: str, endpoint: str = "--endpoint") -> Iterator[RunningEngine]:
    """Thanos Query over these stores; series that differ in their label `replica` are one."""
    grpc, address = (f"127.0.0.1:{free_port()}" for _ in range(2))
    listen = (f"--grpc-address={grpc}", f"--http-address={address}", "--query.replica-label=replica")
    command = [str(FOLDER / "thanos"), "query", *listen, *(f"{endpoint}={store}" for store in stores), *flags]
    with run_engine(command, f"http://{address}", "/-/ready") as engine:
        yield engine


@contextmanager
def running_query_frontend(query: RunningEngine) -> Iterator[RunningEngine]:
    """Thanos Query Frontend in front of a Thanos Query."""
    address = f"127.0.0.1:{free_port()}"
    flags = (f"--query-frontend.downstream-url={query.url}", f"--http-address={address}")
    with run_engine([str(FOLDER / "thanos"), "query-frontend", *flags], f"http://{address}", "/-/ready") as engine:
        yield engine


@contextmanager
def running_mimir(folder: Path, samples: Iterable[Sample]) -> Iterator[RunningEngine]:
    """Mimir in one process, with the samples of one tenant written by remote write."""
    http, grpc = free_port(), free_port()
    config = folder / "mimir.yaml"
    config.write_text(yaml.safe_dump(_mimir_config(folder, http, grpc)))
    command = [str(FOLDER / "mimir"), f"-config.file={config}", "-target=all"]
    with run_engine(command, f"http://127.0.0.1:{http}", "/ready") as engine:
        write_samples(f"{engine.url}/api/v1/push", samples, TENANT)
        yield engine


def _mimir_config(folder: Path, http: int, grpc: int) -> dict[str, object]:
    ring = {"instance_addr": "127.0.0.1", "kvstore": {"store": "inmemory"}}
    single = {**ring, "replication_factor": 1}
    return {
        "multitenancy_enabled": True,
        "usage_stats": {"enabled": False},
        "server": {
            "http_listen_address": "127.0.0.1",
            "http_listen_port": http,
            "grpc_listen_address": "127.0.0.1",
            "grpc_listen_port": grpc,
            "log_level": "error",
        },
        "memberlist": {"bind_addr": ["127.0.0.1"], "bind_port": free_port()},
        "common": {"storage": {"backend": "filesystem", "filesystem": {"dir": str(folder / "common")}}},
        "blocks_storage": {
            "storage_prefix": "blocks",
            "tsdb": {"dir": str(folder / "tsdb")},
            "bucket_store": {"sync_dir": str(folder / "sync")},
        },
        "compactor": {"data_dir": str(folder / "compactor"), "sharding_ring": ring},
        "ruler": {"rule_path": str(folder / "rules"), "ring": ring},
        "alertmanager": {"data_dir": str(folder / "alertmanager"), "sharding_ring": single},
        "activity_tracker": {"filepath": str(folder / "activity.log")},
        "distributor": {"ring": ring},
        "ingester": {"ring": {**single, "min_ready_duration": "0s"}},
        "store_gateway": {"sharding_ring": single},
        "frontend": {"address": "127.0.0.1"},
        "query_scheduler": {"ring": ring},
        "limits": {
            "ingestion_rate": 1e7,
            "ingestion_burst_size": 10_000_000,
            "max_global_series_per_user": 0,
            "max_label_names_per_series": 60,
        },
    }
