"""Whoever sees one namespace gets the answers of a site that has only that namespace, or is refused: every route."""

import inspect
import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpusteward.analyzer.api.source_reader import SourceReader
from gpusteward.analyzer.ledger_access import LedgerAccess
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.reclaim.plan import ReclaimControl
from gpusteward.analyzer.results import Result
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.core.node.containers import Workload, WorkloadKey
from gpusteward.core.usages import Measure
from tests.analyzer.api.fake_reclaim import FakeReclaim
from tests.analyzer.api.sample_results import OPINION
from tests.analyzer.api.server import Api, FakeSource, Response, make_result, running_api
from tests.analyzer.api.test_limited_access import FOREIGN_JOB, LEAD, OWN_JOB, PERIOD, REQUESTS, ask, hold
from tests.analyzer.usage_tables import GIB, resting, signal, table_of, working

OWN_SERVER = Workload("Deployment", "own", "own-server")
NOW = float(int(time.time()))
"""The overview asks the ledger for the days before now."""
RECENT = "&".join(
    f"{name}={datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"
    for name, at in (("since", NOW - 7200), ("until", NOW + 7200))
)
REFUSED = {
    "/metrics",
    "/config",
    "/api/v1/sources",
    "/api/v1/deliveries",
    "/api/v1/reclaim",
    "/api/v1/policies",
}
"""What cannot be divided by namespace."""
SAYS_WHO = {"/api/v1/me", "/api/v1/session"}
"""They name the namespaces of the client."""
UNFIT = {
    *("namespaces", "tag", "replica", "settings_reloads"),
    *("result_age_seconds", "at_ms", "made_ms", "until_ms", "fleet_coverage_ratio"),
}
"""Fields that name the scope itself, the site as a whole or the moment of the answer."""


def make_settings(**rule: Any) -> Settings:
    """`rule`: the namespaces of the client."""
    rules = [{"users": ["lead"], "role": "viewer", **rule}]
    proxy = {"addresses": ["127.0.0.1"]}
    return Settings.model_validate({"auth": {"proxy": proxy, "rules": rules}, "prices": {"per_gpu_hour": {"*": 2.0}}})


SETTINGS = {False: make_settings(namespaces=["ow?"]), True: make_settings()}


def make_site(*, only_own: bool, number: int = 1, at: float = NOW) -> Result:
    """Both namespaces hold GPUs, also on the same node; the foreign one has a node of its own."""
    whole = signal(Measure.MEMORY_TOTAL, 80 * GIB) | signal(Measure.POWER_LIMIT, 700)
    idle, busy = resting(4.0) | whole, working(0.8, 1.0) | whole
    rows = [
        (FOREIGN_JOB, "GPU-foreign", "n1", idle),
        (OWN_JOB, "GPU-own", "n1", idle),
        (FOREIGN_JOB, "GPU-foreign-2", "foreign-node", busy),
        (OWN_JOB, "GPU-own-2", "n2", busy),
        (OWN_SERVER, "GPU-own-3", "n2", idle),
        (OWN_SERVER, "GPU-own-4", "n2", {}),
    ]
    rows = [row for row in rows if not only_own or row[0].namespace == "own"]
    held = [hold(owner, gpu, node=node) for owner, gpu, node, _ in rows]
    held = [replace(one, gpu_index=one.gpu_uuid.partition("-")[2]) for one in held]
    table = table_of(*(each[-1] for each in rows), allocations=held, coverage=[1] * len(rows), at=at)
    opinions = {row: OPINION for row, one in enumerate(held) if one.container.namespace == "own"}
    return make_result(table, settings=SETTINGS[only_own], number=number, opinions=opinions)


def make_ledger(directory: Path, *, only_own: bool) -> LedgerAccess:
    ledger = LedgerAccess(LedgerSettings(directory=directory), lambda: PriceSettings(per_gpu_hour={"*": 2.0}))
    for minute in range(0, 61, 5):
        ledger.record(make_site(only_own=only_own, number=1 + minute, at=NOW - 3600 + 60 * minute))
    for workload in (OWN_JOB, *([] if only_own else [FOREIGN_JOB])):
        key = WorkloadKey(workload.kind, workload.namespace, workload.name)
        ledger.add_snooze(key, until=NOW + 3600, reason="a demo", who="lee", at=NOW - 60)
    return ledger


class SourceOfPods(FakeSource):
    """Describes only GPUs of its site."""

    def __init__(self, result: Result) -> None:
        super().__init__()
        self._gpus = [(one.node, one.gpu_index, one.gpu_uuid) for one in result.verdicts.usage.allocations]

    def read_gpus(self, node: str, cluster: str, at: float) -> Any:
        described = super().read_gpus(node, cluster, at)[0]
        return [replace(described, index=index, uuid=uuid) for its, index, uuid in self._gpus if its == node]


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, Api]]:
    """The whole site for a viewer of one namespace, and the site that has only this one for a viewer of everything."""
    directory = tmp_path_factory.mktemp("scope")
    ledgers = [make_ledger(directory / str(only_own), only_own=only_own) for only_own in (False, True)]
    results = [make_site(only_own=only_own) for only_own in (False, True)]
    reclaim = [FakeReclaim(jobs, suspended=None) for jobs in ([OWN_JOB, FOREIGN_JOB], [OWN_JOB])]
    with (
        running_api(results[0], ledger=ledgers[0], source=SourceOfPods(results[0]), reclaim=reclaim[0]) as a,
        running_api(results[1], ledger=ledgers[1], source=SourceOfPods(results[1]), reclaim=reclaim[1]) as b,
    ):
        yield a, b
    for ledger in ledgers:
        ledger.close()


def strip(value: Any) -> Any:
    """Without what the scope itself or the moment of the answer is."""
    if isinstance(value, list):
        return [strip(each) for each in value if not is_of_whole_site(each)]
    if isinstance(value, dict) and "booked_at" in value:  # the ledger: whoever sees a part of it learns this only
        return {name: value[name] for name in ("is_ready", "booked_at")}
    if isinstance(value, dict):
        return {name: strip(each) for name, each in value.items() if name not in UNFIT}
    return re.sub(r"^\d{4}-\d\d-\d\dT[0-9:.]+Z$", "TIME", value) if isinstance(value, str) else value


def is_of_whole_site(each: Any) -> bool:
    """How many GPUs nobody holds is not asked where they belong to no namespace that is seen."""
    return isinstance(each, dict) and each.get("code") == "gpus-not-counted"


def read_answer(response: Response) -> Any:
    try:
        return strip(json.loads(response.body))
    except ValueError:
        text = response.body.decode().replace("<p>Namespaces: own</p>", "")
        text = text.replace("<li>Unallocated time is unknown: no source reports the number of GPUs.</li>", "")
        return re.sub(r"(as of|generated)[^<]+|\d{4}-\d\d-\d\dT[0-9:]+Z", "TIME", text)


@pytest.mark.parametrize(("method", "path"), REQUESTS)
def test_the_answer_is_that_of_a_site_with_the_own_namespace_only(sites: tuple[Api, Api], method: str, path: str):
    limited, whole = (ask(api, method, path.replace(PERIOD, RECENT), LEAD) for api in sites)
    if path.partition("?")[0] in REFUSED and method == "GET":
        assert (limited.status, limited.json["type"], whole.status) == (403, "urn:gpusteward:problem:limited", 200)
        return
    assert limited.status == whole.status
    if path.partition("?")[0] not in SAYS_WHO:
        assert read_answer(limited) == read_answer(whole)


def test_the_two_sites_differ():
    both, own = make_site(only_own=False), make_site(only_own=True)
    assert (len(both.verdicts), len(own.verdicts)) == (6, 4)
    assert np.allclose(both.verdicts.score[[1, 3, 4, 5]], own.verdicts.score, equal_nan=True)


OF_NO_CLIENT = {"read_last_gpus", "read_node_gpus", "read_clusters", "read_switch"}
"""What the analyzer reads for itself, and what is refused to whoever sees some namespaces only."""


@pytest.mark.parametrize("component", [LedgerAccess, SourceReader, ReclaimControl])
def test_no_read_of_a_client_forgets_whose_namespaces_it_sees(component: type):
    reads = {name: getattr(component, name) for name in vars(component) if name.startswith("read_")}
    for name in reads.keys() - OF_NO_CLIENT:
        parameters = inspect.signature(reads[name]).parameters
        asked = [parameters[each] for each in ("visible", "held") if each in parameters]
        assert [each.default for each in asked] == [inspect.Parameter.empty], name
