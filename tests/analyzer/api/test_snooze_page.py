"""The page behind a snooze link: opening it changes nothing, its button snoozes one workload within its policy."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusteward.analyzer.ledger_access import LedgerAccess
from gpusteward.analyzer.notify.links import LinkSigner, SnoozeLink
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.core.node.containers import Workload, WorkloadKey
from tests.analyzer.api.fake_reclaim import FakeReclaim
from tests.analyzer.api.sample_results import small_result
from tests.analyzer.api.server import Api, running_api
from tests.analyzer.usage_tables import AT

SIGNER = LinkSigner(b"key")
SERVER = WorkloadKey("Deployment", "vision", "server")
TOKENS = Settings.model_validate(
    {"server": {"tokens": "admin: admin-0123456789", "anonymous_reads": "never"}}
)  # the link needs none of them


def sign(*, expires_at: float = AT + 60, language: str = "en") -> str:
    return SIGNER.sign(SnoozeLink("Deployment", "vision", "server", "", "ops", language, int(expires_at)))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[LedgerAccess]:
    access = LedgerAccess(LedgerSettings(directory=tmp_path), PriceSettings)
    access.record(small_result())
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
    assert "is snoozed until" in done.body.decode()
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


def test_the_page_is_in_the_language_of_the_notice(api: Api):
    assert "暂缓" in api.get(f"/snooze?link={sign(language='zh')}").body.decode()


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
