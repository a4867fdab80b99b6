"""/api/v1/reports on a real ledger: formats, roles, failures."""

import csv
import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from gpusteward.analyzer.api.http.concurrency_limits import CONCURRENT_REQUESTS, WAITING_REQUESTS
from gpusteward.analyzer.ledger.database.periods import HOUR_MS
from gpusteward.analyzer.ledger_access import LedgerAccess
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.reports.group_details import read_group_details
from gpusteward.analyzer.reports.make_report import make_report
from gpusteward.analyzer.reports.report import GroupDetails, Report
from gpusteward.analyzer.reports.report_query import ReportQuery
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.analyzer.settings.settings import ServerSettings, Settings
from gpusteward.core.errors import SourceError
from tests.analyzer.api.server import Api, FakeLedger, running_api
from tests.analyzer.reports.ledger_rows import A100, T4, at, open_ledger_rows
from tests.waiting import wait_until

PATH = "/api/v1/reports"
WEEK = f"{PATH}?since=2025-11-12&until=2025-11-13"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    folder: Path = tmp_path_factory.mktemp("ledger")
    with open_ledger_rows(f"sqlite:///{folder / 'ledger.db'}") as ledger:
        ledger.hold(1, namespace="vision", model=A100)
        ledger.hold(2, namespace="lab", model=T4)
        for hour in range(24):
            ledger.use(1, hour=hour, active=HOUR_MS)
            ledger.use(2, hour=hour, idle=HOUR_MS)
        ledger.record_until(24)

        class OpenLedger(FakeLedger):
            def read_report(self, query: ReportQuery, **_: Any) -> Report:
                return make_report(ledger.engine, query, prices=PriceSettings(currency="CNY"), now_ms=at(24))

            def read_group_details(self, query: ReportQuery, **_: Any) -> GroupDetails:
                return read_group_details(ledger.engine, query, now_ms=at(24))

        with running_api(ledger=OpenLedger()) as running:
            yield running


def test_a_report_is_json_by_default(api: Api):
    response = api.get(WEEK)
    assert (response.status, response.headers["content-type"]) == (200, "application/json")
    assert response.headers["cache-control"] == "private, no-store"
    report = response.json
    assert report["currency"] == "CNY"
    assert [(group["name"], group["amounts"]["idle_gpu_ms"]) for group in report["groups"]] == [
        ("lab", 24 * HOUR_MS),
        ("vision", 0),
    ]


@pytest.mark.parametrize(
    ("query", "accept", "kind"),
    [
        ("&format=csv", "application/json", "text/csv"),
        ("&format=html", "", "text/html"),
        ("", "text/html,application/xhtml+xml,*/*;q=0.8", "text/html"),  # a browser
        ("", "text/csv", "text/csv"),
        ("", "text/html;q=0.1, application/json", "application/json"),
        ("", "image/png", "application/json"),
    ],
)
def test_the_format_is_chosen_by_the_query_or_by_what_the_client_accepts(api: Api, query: str, accept: str, kind: str):
    response = api.get(WEEK + query, Accept=accept)
    assert response.headers["content-type"].partition(";")[0] == kind


def test_the_content_policy_of_a_page_allows_only_its_own_style(api: Api):
    policy = api.get(f"{WEEK}&format=html&language=zh").headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


def test_a_csv_is_an_attachment_and_its_rows_sum_up_to_the_total(api: Api):
    response = api.get(f"{WEEK}&format=csv&by=model")
    assert response.headers["content-disposition"] == 'attachment; filename="gpusteward-model.csv"'
    *rows, total = csv.DictReader(io.StringIO(response.body.decode()))
    assert sum(int(row["allocated_gpu_ms"]) for row in rows) == int(total["allocated_gpu_ms"]) == 48 * HOUR_MS


def test_the_groups_of_a_report_have_their_time_by_hour_and_their_workloads(api: Api):
    response = api.get(f"{PATH}/groups?since=2025-11-12&until=2025-11-13")
    assert (response.status, response.headers["cache-control"]) == (200, "private, no-store")
    lab, vision = response.json["groups"]
    assert (len(response.json["at_ms"]), response.json["step_ms"]) == (24, HOUR_MS)
    assert (lab["name"], lab["idle_gpu_ms"], lab["workloads"][0]["name"]) == ("lab", [HOUR_MS] * 24, "job-2")
    assert (vision["name"], vision["active_gpu_ms"], vision["workloads"]) == ("vision", [HOUR_MS] * 24, [])
    assert api.get(f"{PATH}/groups?by=colour").status == 422


def test_rows_can_be_filtered_and_limited(api: Api):
    assert [group["name"] for group in api.get(f"{WEEK}&namespace=vision").json["groups"]] == ["vision"]
    cut = api.get(f"{WEEK}&rows=1&top=0").json
    assert (len(cut["groups"]), cut["others"]["name"], cut["wasters"]) == (1, "1", [])
    assert api.get(f"{WEEK}&by=workload").json["groups"][0]["kind"] == "Job"


@pytest.mark.parametrize(
    "wrong",
    [
        "since=yesterday",
        "since=2025-13-01",
        "since=2025-11-13&until=2025-11-12",
        "by=pod",
        "rows=0",
        "format=pdf",
        "sinse=7d",
    ],
)
def test_an_invalid_parameter_is_a_problem(api: Api, wrong: str):
    response = api.get(f"{PATH}?{wrong}")
    assert (response.status, response.headers["content-type"]) == (422, "application/problem+json")


def test_a_report_needs_a_viewer():
    settings = Settings(server=ServerSettings(anonymous_reads="never", tokens=SecretStr("viewer: " + "v" * 32)))
    with running_api(settings=settings) as api:
        assert api.get(PATH).status == 401
        assert api.get(PATH, token="v" * 32).status == 200


def test_without_a_ledger_the_problem_names_the_setting():
    disabled = LedgerAccess(LedgerSettings(enabled=False), PriceSettings)
    with running_api(ledger=disabled) as api:
        response = api.get(PATH)
    assert (response.status, response.json["type"]) == (503, "urn:gpusteward:problem:ledger-failed")
    assert "ledger.enabled" in response.json["detail"]


def test_a_hanging_database_costs_only_its_own_requests():
    """As many requests as allowed run, some wait for their turn, more are refused at once."""
    entered, over, types = threading.Semaphore(0), threading.Event(), []

    class HangingLedger(FakeLedger):
        def read_report(self, query: ReportQuery, **_: Any) -> Report:
            entered.release()
            over.wait(60)
            raise SourceError("the ledger cannot be read")

    with running_api(ledger=HangingLedger()) as api:

        def read() -> None:
            types.append(api.get(PATH).json["type"].rpartition(":")[2])

        requests = [threading.Thread(target=read) for _ in range(CONCURRENT_REQUESTS + WAITING_REQUESTS + 1)]
        try:
            for each in requests:
                each.start()
            assert all(entered.acquire(timeout=20) for _ in range(CONCURRENT_REQUESTS))
            wait_until(lambda: types == ["busy"])
            assert api.get("/health").status == 200
            assert not entered.acquire(blocking=False)
        finally:
            over.set()
            for each in requests:
                each.join(20)
    assert types == ["busy"] + ["ledger-failed"] * (CONCURRENT_REQUESTS + WAITING_REQUESTS)


def test_a_focus_export_is_csv(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with open_ledger_rows(url) as rows:
        rows.hold(1, namespace="vision")
        rows.use(1, hour=0, idle=HOUR_MS)
        rows.record_until(1)
    with running_api(ledger=LedgerAccess(LedgerSettings(url=SecretStr(url)), PriceSettings)) as api:
        response = api.get(f"{WEEK}&format=focus")
        assert (response.status, response.headers["content-type"]) == (200, "text/csv; charset=utf-8")
        assert response.headers["content-disposition"] == 'attachment; filename="gpusteward-focus.csv"'
        (row,) = csv.DictReader(io.StringIO(response.body.decode()))
        assert (row["BilledCost"], row["SubAccountId"]) == ("2.000000", "vision")
        assert api.get(f"{PATH}?format=focus&since=soon").status == 422


def test_an_unknown_grouping_names_the_known_ones(api: Api):
    response = api.get(f"{WEEK}&by=pod")
    assert response.status == 422
    assert "by: 'pod' is not one of cluster, namespace, workload," in response.json["detail"]


def test_a_report_by_label_needs_a_recorded_label(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with open_ledger_rows(url) as rows:
        rows.hold(1, labels='{"team":"vision"}')
        rows.use(1, hour=0, idle=HOUR_MS)
        rows.record_until(1)
    settings = LedgerSettings(url=SecretStr(url), labels=("team", "cost-center"))
    with running_api(ledger=LedgerAccess(settings, PriceSettings)) as api:
        assert [group["name"] for group in api.get(f"{WEEK}&by=label:team").json["groups"]] == ["vision"]
        page = api.get(f"{WEEK}&by=label:cost-center&format=html&language=zh").body.decode()
        assert "按标签 cost-center" in page
        assert "（无此标签）" in page
        wrong = api.get(f"{WEEK}&by=label:project")
        assert wrong.status == 422
        assert "'project' is not recorded; recorded labels (ledger.labels): team, cost-center" in wrong.json["detail"]
