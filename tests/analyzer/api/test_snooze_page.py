"""The page behind a snooze link: opening it changes nothing, its button snoozes one workload within its policy."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpusteward.analyzer.api.snooze_page import divide_day, make_stop_command
from gpusteward.analyzer.ledger_access import LedgerAccess
from gpusteward.analyzer.notify.links import LinkSigner, SnoozeLink
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.reclaim.permission import Mode
from gpusteward.analyzer.reports.workload_history import RecordedVerdict
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.core.node.containers import Workload, WorkloadKey
from gpusteward.core.verdicts import Activity
from tests.analyzer.api.fake_reclaim import FakeReclaim
from tests.analyzer.api.sample_results import H100, small_result
from tests.analyzer.api.server import Api, running_api
from tests.analyzer.usage_tables import AT

SIGNER = LinkSigner(b"key")
SERVER = WorkloadKey("Deployment", "vision", "server")
TOKENS = Settings.model_validate(
    {"server": {"tokens": "admin: admin-0123456789", "anonymous_reads": "never"}}
)  # the link needs none of them


def sign(*, expires_at: float = AT + 60, language: str = "en", namespace: str = "vision") -> str:
    return SIGNER.sign(SnoozeLink("Deployment", namespace, "server", "", "ops", language, int(expires_at)))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[LedgerAccess]:
    access = LedgerAccess(LedgerSettings(directory=tmp_path), PriceSettings)
    access.record(small_result(at=AT - 7200))
    access.record(small_result(number=2))
    yield access
    access.close()


@pytest.fixture
def api(ledger: LedgerAccess) -> Iterator[Api]:
    reclaim = FakeReclaim([Workload("Deployment", "vision", "server")])
    with running_api(small_result(), settings=TOKENS, ledger=ledger, links=SIGNER, reclaim=reclaim) as api:
        yield api


def test_opening_the_link_changes_nothing(api: Api, ledger: LedgerAccess):
    page = api.get(f"/snooze?link={sign()}&hours=8")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    text = page.body.decode()
    assert "vision/Deployment/server" in text
    assert re.findall(r"hours=(\d+)", text) == ["8", "4", "24"], "the choice of the button first"
    assert "script" not in text
    assert "form-action 'self'" in page.headers["content-security-policy"]
    assert (page.headers["referrer-policy"], page.headers["cache-control"]) == ("no-referrer", "no-store")
    assert ledger.read_snoozes(AT, visible=None) == {}


def test_the_button_snoozes_the_workload(api: Api, ledger: LedgerAccess):
    text = api.get(f"/snooze?link={sign()}&hours=8").body.decode()
    action = re.findall(r'action="([^"]+)"', text)[0].replace("&amp;", "&")
    done = api.post(f"/snooze{action}")
    assert done.status == 200
    assert "is kept until" in done.body.decode()
    snooze = ledger.read_snoozes(AT, visible=None)[SERVER]
    assert (snooze.until, snooze.who) == (AT + 8 * 3600, "link (ops)")


def test_a_snooze_is_capped_by_the_policy(api: Api, ledger: LedgerAccess):
    assert api.post(f"/snooze?link={sign()}&hours=8760").status == 200
    assert ledger.read_snoozes(AT, visible=None)[SERVER].until == AT + 7 * 86_400


def test_a_link_never_shortens_a_snooze(api: Api, ledger: LedgerAccess):
    ledger.add_snooze(SERVER, until=AT + 3 * 86_400, reason="a deadline", who="alice", at=AT)
    done = api.post(f"/snooze?link={sign()}&hours=4")
    assert done.status == 200
    snooze = ledger.read_snoozes(AT, visible=None)[SERVER]
    assert (snooze.until, snooze.who) == (AT + 3 * 86_400, "alice")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_link_that_was_not_signed_here_or_is_over_is_refused(api: Api, ledger: LedgerAccess, method: str):
    other = LinkSigner().sign(SnoozeLink("Deployment", "vision", "server", "", "ops", "en", int(AT + 60)))
    assert api.get(f"/snooze?link={other}", method=method).status == 403
    assert api.get("/snooze", method=method).status == 403
    expired = api.get(f"/snooze?link={sign(expires_at=AT)}", method=method)
    assert (expired.status, b"expired" in expired.body) == (410, True)
    assert ledger.read_snoozes(AT, visible=None) == {}


HELD = Workload("Deployment", "chat", "server")


def read_page(ledger: LedgerAccess, *, language: str = "en", **options: Any) -> str:
    """Of the workload that holds an idle GPU."""
    settings = Settings.model_validate(
        {"prices": {"per_gpu_hour": {"H100": 4.0}}, "server": {"public_url": "https://gpus.example.com/g"}}
    )
    result = small_result(settings=settings)
    with running_api(result, settings=settings, ledger=ledger, links=SIGNER, **options) as api:
        return api.get(f"/snooze?link={sign(language=language, namespace='chat')}").body.decode()


def list_facts(page: str) -> dict[str, str]:
    return dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page))


def test_the_page_says_since_when_what_happens_when_what_it_costs_and_why(ledger: LedgerAccess):
    page = read_page(ledger, reclaim=FakeReclaim([HELD]))
    facts = list_facts(page)
    assert "<h1>chat/Deployment/server</h1>" in page
    assert f"GPUs held: 1 ({H100})" in page
    assert "<pre>kubectl scale deployment server --namespace chat --replicas=0</pre>" in page
    assert re.fullmatch(r"2026-\d\d-\d\d \d\d:\d\d UTC \(\d+ .+\)", facts["Idle since"])
    assert re.fullmatch(r"At 2026-.* UTC it is suspended by the policy night-shift, .*", facts["What happens"])
    assert re.fullmatch(r"[\d.,]+ USD", facts["Cost of this idle time"])
    assert facts["Why"].startswith("<ul><li>")
    assert 'href="https://gpus.example.com/g/ui/#/workloads/-/Deployment/chat/server"' in page


@pytest.mark.parametrize(
    ("reclaim", "said"),
    [
        (None, "Nothing is stopped."),
        (FakeReclaim([HELD], mode=Mode.OBSERVE), "Nothing is stopped: policies are only tried out here."),
        (FakeReclaim([Workload("Job", "chat", "other")]), "Nothing is stopped."),
    ],
)
def test_the_page_says_that_nothing_is_stopped(ledger: LedgerAccess, reclaim: FakeReclaim | None, said: str):
    assert list_facts(read_page(ledger, reclaim=reclaim))["What happens"] == said


def test_the_page_says_until_when_it_is_kept(ledger: LedgerAccess):
    ledger.add_snooze(
        WorkloadKey("Deployment", "chat", "server"), until=AT + 86_400, reason="a deadline", who="alice", at=AT
    )
    said = list_facts(read_page(ledger, reclaim=FakeReclaim([HELD])))["What happens"]
    assert said.startswith("It is kept until 2026-")


def test_the_picture_is_the_day_before_in_order(ledger: LedgerAccess):
    page = read_page(ledger)
    assert "The last 24 hours: 2 h idle, 22 h unknown" in page
    bars = re.findall(r'<rect class="(\w+)" x="(\d+)" y="0" width="(\d+)"', page)
    assert bars == [("idle", str(22 * 3600), str(2 * 3600))]


def test_a_day_is_divided_at_each_change_of_the_verdict():
    def change(hours_ago: float, activity: str) -> RecordedVerdict:
        return RecordedVerdict(round((AT - hours_ago * 3600) * 1000), activity, "", "", None, 1, 1, None)

    newest_first = [change(2, "idle"), change(5, "unknown"), change(30, "active"), change(40, "idle")]
    parts = [(AT - start, AT - end, activity) for start, end, activity in divide_day(newest_first, now=AT)]
    assert parts == [
        (24 * 3600, 5 * 3600, Activity.ACTIVE),
        (5 * 3600, 2 * 3600, Activity.UNKNOWN),
        (2 * 3600, 0, Activity.IDLE),
    ]
    assert list(divide_day([], now=AT)) == []


@pytest.mark.parametrize(
    ("workload", "command"),
    [
        (
            WorkloadKey("Job", "a", "b"),
            """kubectl patch job b --namespace a --type merge --patch '{"spec": {"suspend": true}}'""",
        ),
        (WorkloadKey("Pod", "a", "b"), "kubectl delete pod b --namespace a"),
        (
            WorkloadKey("Deployment", "a", "$(reboot)"),
            "kubectl scale deployment '$(reboot)' --namespace a --replicas=0",
        ),
        (WorkloadKey("Strange", "a", "b"), ""),
    ],
)
def test_the_command_that_stops_a_workload_follows_from_the_table_of_kinds(workload: WorkloadKey, command: str):
    assert make_stop_command(workload) == command


def test_a_workload_that_holds_nothing_any_more_can_still_be_kept(api: Api):
    page = api.get(f"/snooze?link={sign()}").body.decode()
    assert "It holds no GPU now" in page
    assert page.count("<form") == 3


def test_the_page_is_in_the_language_of_the_notice(ledger: LedgerAccess):
    page = read_page(ledger, language="zh", reclaim=FakeReclaim([HELD]))
    assert all(word in page for word in ("空闲自", "接下来", "依据", "保留 4 小时", "最近 24 小时"))
    assert not re.search(r">[^<]*(Idle since|Keep|suspended|hours)", page)


def test_the_style_is_a_file_of_its_own_in_both_themes(api: Api):
    page = api.get(f"/snooze?link={sign()}").body.decode()
    assert 'href="snooze/page.css"' in page
    style = api.get("/snooze/page.css")
    assert (style.status, style.headers["content-type"]) == (200, "text/css; charset=utf-8")
    assert b"light-dark(" in style.body


def test_a_ledger_that_cannot_be_written_is_said_in_plain_words():
    with running_api(
        small_result(), links=SIGNER, ledger=LedgerAccess(LedgerSettings(enabled=False), PriceSettings)
    ) as api:
        failed = api.post(f"/snooze?link={sign()}")
    assert failed.status == 503
    assert b"could not be stored" in failed.body


def test_names_in_the_page_are_escaped(api: Api):
    link = SnoozeLink("Deployment", "vision", "<script>alert(1)</script>", "", "ops", "en", int(AT + 60))
    assert b"<script>" not in api.get(f"/snooze?link={SIGNER.sign(link)}").body
