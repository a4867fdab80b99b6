"""`gpusteward doctor --cluster`, which `helm test` runs."""

import json
from typing import Any

import pytest
import yaml

from gpusteward.analyzer.reclaim.kinds.rights import list_enforce_rights
from gpusteward.analyzer.reclaim.permission import Mode
from gpusteward.cli.api.client import Peer, make_client
from gpusteward.cli.commands import doctor
from gpusteward.cli.doctor.check_results import CheckResult, CheckStatus
from gpusteward.cli.doctor.installation import OF_ANALYZER, check_reclaim, check_verdicts, wait_until_installed
from gpusteward.cli.program import EXIT_FAILURE, EXIT_OK
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.usages import Measure
from tests.analyzer.api.fake_reclaim import FakeReclaim
from tests.analyzer.api.server import FakeSource, make_result, running_api
from tests.analyzer.usage_tables import resting, table_of, working
from tests.documents import ROOT
from tests.kubernetes.cluster import Cluster

ENGINE = {"url": "http://engine", "engine": "Prometheus", "dialects": [{"name": "native"}], "failures": {}}
SCRAPED = {"url": "", "engine": "gpusteward", "dialects": [{"name": "dcgm"}], "failures": {}}

ANALYZER = "gpusteward-analyzer"


def check(*rows: Any, coverage: list[float] | None = None, has_result: bool = True, **source: Any) -> list[CheckResult]:
    table = table_of(*rows, **({"coverage": coverage} if coverage else {}))
    with running_api(make_result(table) if has_result else None, source=FakeSource(**source)) as api:
        return list(check_verdicts(make_client(Peer.ANALYZER, api.url)))


def statuses(results: list[CheckResult]) -> dict[str, CheckStatus]:
    return {result.check: result.status for result in results}


def test_an_engine_with_verdicts_passes():
    results = check(working(), resting(), described=ENGINE | {"service": "monitoring/prometheus"})
    found = statuses(results)
    assert {name for name, status in found.items() if status is not CheckStatus.OK} == {"holders", "notices"}
    texts = {result.check: result.finding for result in results}
    assert texts["targets"] == "Prometheus monitoring/prometheus http://engine has GPU metrics of native"
    assert texts["verdicts"] == "2 allocations judged; GPUs: 1 active, 1 idle, 0 unknown"


def test_holders_proof_by_model_and_notices_are_in_the_table():
    sampled = {key: value for key, value in resting().items() if key[0] is not Measure.BUSY}
    results = check(working(), resting(), sampled, described=ENGINE)
    texts = {result.check: result for result in results}
    assert texts["holders"].finding.endswith("owners of 0 of 1 workload read from the API server")
    assert "kubernetes.cluster" in texts["holders"].mend
    assert texts["proof"].finding == "NVIDIA H100 80GB HBM3: 2 of 3 holders measured without gaps"
    assert "DCGM_FI_PROF_GR_ENGINE_ACTIVE" in texts["proof"].mend
    assert (texts["notices"].status, texts["notices"].mend[:20]) == ("skip", "set notify.channels ")


def test_the_manifests_give_the_analyzer_the_rights_that_are_asked_for():
    documents = yaml.safe_load_all((ROOT / "deploy/manifests/analyzer.yaml").read_text())
    roles = (one for one in documents if one and one["kind"] == "ClusterRole" and one["metadata"]["name"] == ANALYZER)
    granted = {
        (verb, resource)
        for role in roles
        for rule in role["rules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }
    assert set(OF_ANALYZER) <= granted


@pytest.mark.slow
def test_rights_of_reclaim_are_asked_where_it_may_act(kubernetes: Cluster):
    """Those of the chart's Role in one namespace: there is none in the other, nor one for all."""
    team, other = (kubernetes.add_namespace(name) for name in ("team", "other"))
    rules = [
        {"apiGroups": [right.group], "resources": [right.resource], "verbs": list(right.verbs)}
        for right in list_enforce_rights()
    ]
    account = kubernetes.add_account(team, rules, is_cluster_wide=False)
    token, authority = (account.folder / "token").read_text(), str(account.folder / "ca.crt")
    server = make_client(Peer.API_SERVER, kubernetes.url, token=token, ca_file=authority)

    def ask(namespaces: list[str] | None, mode: Mode = Mode.ENFORCE) -> list[tuple[CheckStatus, str]]:
        reclaim = FakeReclaim([], mode, namespaces=namespaces)
        with running_api(make_result(table_of(resting())), reclaim=reclaim) as api:
            found = check_reclaim(server, make_client(Peer.ANALYZER, api.url))
            return [(each.status, each.finding) for each in found]

    def name(namespace: str) -> str:
        rights = ("patch pods", "patch deployments.apps", "create pods/eviction")
        return ", ".join(f"{right}{namespace}" for right in rights)

    assert ask([team]) == [(CheckStatus.OK, f"may {name(f' in {team}')}")]
    assert ask([team, other]) == [(CheckStatus.FAIL, f"may not {name(f' in {other}')}")]
    assert ask(None) == [(CheckStatus.FAIL, f"may not {name('')}")]
    assert ask(None, Mode.OBSERVE) == []


def test_no_target_that_can_be_scraped_fails_with_the_reason():
    failing = SCRAPED | {"failures": {"http://10.0.0.1:9400": "connection refused"}, "dialects": []}
    results = check(working(), described=failing, target_counts={"up": 0, "down": 3})
    assert statuses(results)["targets"] is CheckStatus.FAIL
    found = next(result for result in results if result.check == "targets")
    assert found.finding == "none of 3 targets can be scraped: connection refused"
    assert "NetworkPolicy" in found.mend


def test_some_targets_that_fail_are_a_warning():
    results = check(working(), described=SCRAPED, target_counts={"up": 2, "down": 1})
    assert statuses(results)["targets"] is CheckStatus.WARN


def test_an_engine_without_gpu_metrics_fails():
    empty = ENGINE | {"dialects": [], "failures": {"metrics": "no GPU metrics"}}
    results = check(working(), described=empty)
    assert statuses(results)["targets"] is CheckStatus.FAIL


def test_without_a_result_there_is_no_verdict():
    results = check(working(), has_result=False, described=ENGINE)
    assert statuses(results)["verdicts"] is CheckStatus.FAIL


def test_a_window_that_is_not_full_yet_is_a_warning_with_the_reasons():
    results = check(resting(), coverage=[0.2], described=SCRAPED, target_counts={"up": 1, "down": 0})
    found = results[-1]
    assert found.status is CheckStatus.WARN
    assert found.finding == "1 allocation, not judged yet (coverage: 1)"


def test_it_waits_until_nothing_fails_or_the_time_is_over():
    def result(status: CheckStatus) -> list[CheckResult]:
        return [CheckResult("agents", status, "there is no verdict yet")]

    def attempt(number: int) -> tuple[CheckStatus, float]:
        """The last status and the time it took, when the check succeeds at this attempt."""
        now, checks = [0.0], iter([result(CheckStatus.FAIL)] * number + [result(CheckStatus.OK)] * 100)
        ended = wait_until_installed(
            lambda: next(checks), 120, clock=lambda: now[0], sleep=lambda seconds: now.append(now.pop() + seconds)
        )
        return ended[0].status, now[0]

    assert attempt(0) == (CheckStatus.OK, 0)
    assert attempt(5) == (CheckStatus.OK, 10)
    assert attempt(90) == (CheckStatus.FAIL, 120)


def test_the_command_says_what_is_wrong_and_ends_with_1(capsys: pytest.CaptureFixture[str]):
    arguments = ["--cluster", "--server=http://127.0.0.1:9", "--output=json"]
    assert doctor.run(arguments) == EXIT_FAILURE
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["check"], row["status"]) == ("analyzer", "fail")
    with running_api(make_result(table_of(working())), source=FakeSource(described=ENGINE)) as api:
        assert doctor.run(["--cluster", f"--server={api.url}"]) == EXIT_OK
    with pytest.raises(ConfigurationError, match="NAMESPACE/NAME"):
        doctor.run(["--cluster", "--agents=gpusteward-agent"])
