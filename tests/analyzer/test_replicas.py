"""Two analyzers on one PostgreSQL, as processes: one writes, the other serves, and takes over when the first fails."""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.simulate.fleets import default_node, fleet
from tests.analyzer.engines import RunningEngine, running_prometheus
from tests.analyzer.ledger.cycles import open_ledger, read_table
from tests.analyzer.ledger.postgres_server import RunningPostgres
from tests.analyzer.notify.notifier_process import HOOK
from tests.analyzer.scraped_history import scrape_history, scrape_times
from tests.analyzer.serve_process import RunningServe, running_serve
from tests.fakes.kubernetes_objects import FakeObjects
from tests.fakes.receivers import Receiver
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

ENVIRONMENT = {"PATH": os.environ["PATH"]}
LEASE_SECONDS = LedgerSettings.lease_seconds


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    times = scrape_times(1500, at=time.time() + 300)
    samples = scrape_history([default_node(1, name="showcase"), *fleet(4)], times)
    with running_prometheus(tmp_path_factory.mktemp("prometheus"), samples) as running:
        yield running


class Site:
    """Replicas that share all settings, as those of one Deployment do."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], programs: ExitStack) -> None:
        self._folder, self._settings, self._programs = folder, settings, programs
        self._count = 0

    def start(self, **settings: Any) -> RunningServe:
        """`settings`: further ones, of this replica only."""
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        (folder / "config.yaml").write_text(yaml.safe_dump({**self._settings, **settings}))
        replica = self._programs.enter_context(running_serve(folder, env=ENVIRONMENT))
        replica.wait_for(lambda it: it.get("/health").json["last_analysis"] is not None)
        return replica


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def site(engine: RunningEngine, postgres: RunningPostgres, receiver: Receiver, tmp_path: Path) -> Iterator[Site]:
    settings = {
        "prometheus": {"url": engine.url},
        "scheduler": {"interval": 1},
        "ledger": {"url": postgres.url},
        "notify": {"channels": {"ops": receiver.url + HOOK}, "idle_minutes": 0, "owner_minutes": 0},
    }
    with ExitStack() as programs:
        yield Site(tmp_path, settings, programs)


def role_of(replica: RunningServe) -> str:
    return str(replica.get("/api/v1/health").json["replica"]["role"])


def wait_for_role(replica: RunningServe, role: str, seconds: float = 60) -> float:
    """How long that took."""
    started = time.monotonic()
    replica.wait_for(lambda it: role_of(it) == role, seconds)
    return time.monotonic() - started


def wait_for_records(replica: RunningServe) -> None:
    """Until it has recorded two more cycles."""
    for _ in range(2):
        before = replica.get("/api/v1/health").json["ledger"]["booked_at"]
        replica.wait_for(lambda it, was=before: it.get("/api/v1/health").json["ledger"]["booked_at"] not in (None, was))


def read_idle_since(replica: RunningServe) -> dict[str, Any]:
    items = replica.get("/api/v1/workloads?activity=idle&limit=1000").json["items"]
    return {f"{row['kind']}/{row['namespace']}/{row['name']}": row["idle_since"] for row in items}


def has_metric(replica: RunningServe, text: str) -> bool:
    return text in replica.get("/metrics").body.decode()


def list_findings(replica: RunningServe) -> dict[str, str]:
    return {one["code"]: one["text"] for one in replica.get("/api/v1/health").json["findings"]}


def test_an_analyzer_says_that_the_ledger_records_another_cluster(site: Site):
    """Replicas of one cluster are as healthy as before."""
    with ExitStack() as servers:
        urls = []
        for uid in ("uid-east", "uid-west"):
            fake = servers.enter_context(closing(FakeObjects()))
            fake.add("/api/v1/namespaces/kube-system", uid=uid)
            urls.append(fake.url)
        first, second, other = (site.start(kubernetes={"api_url": url}) for url in (urls[0], *urls))
        assert [role_of(each) for each in (first, second, other)] == ["leader", "reader", "reader"]
        other.wait_for(lambda it: "cluster-not-recorded" in list_findings(it))
        assert "cluster uid-east" in list_findings(other)["cluster-not-recorded"]
        other.wait_for(lambda it: it.get("/health").json["status"] == "warning")  # when its first cycle has finished
        assert "cluster-not-recorded" not in {**list_findings(first), **list_findings(second)}
        for each in (first, second, other):
            each.stop()


def test_one_writes_the_other_reads_and_takes_over(site: Site, receiver: Receiver, postgres: RunningPostgres):
    first = site.start()
    assert role_of(first) == "leader"
    wait_until(lambda: len(receiver.accepted) > 0)
    second = site.start()
    assert role_of(second) == "reader"

    # Both serve the same verdicts; only the leader exports them and accepts changes.
    since = read_idle_since(first)
    assert since
    assert read_idle_since(second) == since
    assert has_metric(first, "gpusteward_analyzer_leader 1")
    assert has_metric(second, "gpusteward_analyzer_leader 0")
    assert has_metric(first, "gpu_utilization_score{")
    assert not has_metric(second, "gpu_utilization_score{")
    assert first.get("/config/update?threshold=21", method="POST").status == 200
    refused = second.get("/config/update?threshold=22", method="POST")
    assert refused.status == 409
    assert "this analyzer only reads" in refused.json["detail"]
    assert second.get("/api/v1/reports?by=namespace").json["groups"]

    # kill -9: the other one leads, knows since when workloads are idle, and repeats no notice.
    sent = len(receiver.accepted)
    first.process.kill()
    assert wait_for_role(second, "leader") < 2 * LEASE_SECONDS + 5
    wait_for_records(second)
    assert read_idle_since(second) == since
    assert has_metric(second, "gpu_utilization_score{")
    assert len(receiver.accepted) == sent

    # A leader that hangs is replaced, and reads when it continues.
    third = site.start()
    assert role_of(third) == "reader"
    os.kill(second.process.pid, signal.SIGSTOP)
    try:
        wait_for_role(third, "leader", 60)
        wait_for_records(third)
    finally:
        os.kill(second.process.pid, signal.SIGCONT)
    wait_for_role(second, "reader")
    assert role_of(third) == "leader"
    assert read_idle_since(third) == since
    assert len(receiver.accepted) == sent

    # A leader that is told to end hands over at once.
    third.stop()
    assert wait_for_role(second, "leader") < LEASE_SECONDS
    wait_for_records(second)
    assert len(receiver.accepted) == sent
    recorded_ms, elapsed_ms = read_recorded_ms(postgres)
    assert elapsed_ms <= recorded_ms <= elapsed_ms + 3000  # a pod is recorded from its start, three intervals at most


def read_recorded_ms(postgres: RunningPostgres) -> tuple[int, int]:
    """The time that was recorded for an allocation that holds a whole GPU, and the time since its first record."""
    ledger = open_ledger(postgres.url)
    rows = read_table(ledger.engine, "usage_hourly")
    (booked,) = [row["at_ms"] for row in read_table(ledger.engine, "progress") if row["name"] == "booked"]
    first = min(row["first_ms"] for row in read_table(ledger.engine, "allocations"))
    ledger.close()
    totals: Counter[int] = Counter()
    for row in rows:
        totals[row["allocation_id"]] += row["allocated_ms"]
    return max(totals.values()), booked - first
