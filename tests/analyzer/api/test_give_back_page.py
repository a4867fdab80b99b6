"""Giving back by the link of a warning: never by opening it, only where settings and policy allow it, and once."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from gpusteward.analyzer.ledger_access import LedgerAccess
from gpusteward.analyzer.notify.links import LinkSigner, SnoozeLink
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.reclaim.permission import Mode
from gpusteward.analyzer.reclaim.plan import Asker
from gpusteward.analyzer.settings.ledger import LedgerSettings
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.core.node.containers import Workload
from tests.analyzer.api.fake_reclaim import FakeReclaim
from tests.analyzer.api.sample_results import small_result
from tests.analyzer.api.server import Api, running_api
from tests.analyzer.usage_tables import AT

SIGNER = LinkSigner(b"key")
HELD = Workload("Deployment", "chat", "server")
CHANNELS = {"me": "mailto://user:pass@mail.example.com", "ops": "dingtalk://token", "both": "mailto://u:p@h ntfy://t"}


def sign(channel: str = "me", *, expires_at: float = AT + 60, language: str = "en") -> str:
    return SIGNER.sign(SnoozeLink("Deployment", "chat", "server", "", channel, language, int(expires_at)))


def open_api(reclaim: FakeReclaim | None, **notify: Any) -> Any:
    values = {
        "notify": {"channels": CHANNELS, **notify},
        "server": {"tokens": "admin: admin-0123456789", "anonymous_reads": "never"},  # the link needs none of them
    }
    settings = Settings.model_validate(values)
    ledger = LedgerAccess(LedgerSettings(enabled=False), PriceSettings)
    return running_api(small_result(settings=settings), settings=settings, ledger=ledger, links=SIGNER, reclaim=reclaim)


@pytest.fixture
def reclaim() -> FakeReclaim:
    return FakeReclaim([HELD])


@pytest.fixture
def api(reclaim: FakeReclaim) -> Iterator[Api]:
    with open_api(reclaim) as api:
        yield api


def follow(page: bytes, pattern: str) -> str:
    (found,) = re.findall(pattern, page.decode())
    return str(found).replace("&amp;", "&")


def test_the_way_from_the_link_to_suspended_and_back(api: Api, reclaim: FakeReclaim):
    first = api.get(f"/snooze?link={sign()}")
    second = api.get("/" + follow(first.body, r'href="(snooze/give-back[^"]+)"'))
    assert second.status == 200
    assert b"What stops" in second.body
    assert b"gpusteward restore chat/Deployment/server" in second.body
    assert b'href="../snooze/page.css"' in second.body
    done = api.post("/snooze/give-back" + follow(second.body, r'action="([^"]+)"'))
    assert (done.status, b"is suspended" in done.body) == (200, True)
    restored = api.post("/snooze/" + follow(done.body, r'action="([^"]+)"'))
    assert (restored.status, b"is restored" in restored.body) == (200, True)
    (by,) = {each.by for each in reclaim.added}
    assert re.fullmatch(r"link \(me\) [0-9a-f]{16}", by), "the journal names the channel and the link"
    assert reclaim.asked == [
        ("preview", "server", Asker.LINK),
        ("suspend", "server", by, Asker.LINK),
        ("restore", "new", by),
    ]


def test_never_suspends_by_opening_a_page(api: Api, reclaim: FakeReclaim):
    for path in ("/snooze", "/snooze/give-back", "/snooze/restore"):
        assert api.get(f"{path}?link={sign()}").status == 200
    assert [words[0] for words in reclaim.asked] == ["preview"]


def test_never_suspends_twice_by_one_link(api: Api, reclaim: FakeReclaim):
    link = sign()
    assert api.post(f"/snooze/give-back?link={link}").status == 200
    assert api.post(f"/snooze/restore?link={link}").status == 200
    again = api.post(f"/snooze/give-back?link={link}")
    assert (again.status, b"once already" in again.body) == (409, True)
    assert [words[0] for words in reclaim.asked] == ["suspend", "restore"]
    assert api.post(f"/snooze/give-back?link={sign(expires_at=AT + 90)}").status == 200, "a new warning has a new link"


@pytest.mark.parametrize(
    ("channel", "notify", "is_offered"),
    [
        ("me", {}, True),
        ("ops", {}, False),  # a group
        ("both", {}, False),
        ("gone", {}, False),
        ("ops", {"give_back": ["ops"]}, True),
        ("me", {"give_back": ["ops"]}, False),
        ("me", {"give_back": []}, False),
    ],
)
def test_never_suspends_by_a_link_of_a_channel_that_may_not(
    reclaim: FakeReclaim, channel: str, notify: dict[str, Any], is_offered: bool
):
    with open_api(reclaim, **notify) as api:
        page = api.get(f"/snooze?link={sign(channel)}").body
        assert (b"/give-back?" in page) is is_offered
        assert (b"kubectl scale deployment server" in page) is not is_offered
        assert api.post(f"/snooze/give-back?link={sign(channel)}").status == (200 if is_offered else 409)
    assert bool(reclaim.added) is is_offered


@pytest.mark.parametrize(
    "reclaim", [None, FakeReclaim([HELD], mode=Mode.OBSERVE), FakeReclaim([Workload("Job", "chat", "other")])]
)
def test_never_suspends_by_a_link_without_enforce_and_a_policy(reclaim: FakeReclaim | None):
    with open_api(reclaim) as api:
        assert b"/give-back?" not in api.get(f"/snooze?link={sign()}").body
        assert api.get(f"/snooze/give-back?link={sign()}").status == 409
        assert api.post(f"/snooze/give-back?link={sign()}").status == 409
    assert reclaim is None or not reclaim.asked


def test_never_restores_what_another_link_or_person_suspended(api: Api, reclaim: FakeReclaim):
    assert api.post(f"/snooze/restore?link={sign()}").status == 409
    assert api.post(f"/snooze/give-back?link={sign()}").status == 200
    assert api.post(f"/snooze/restore?link={sign(expires_at=AT + 90)}").status == 409
    assert "restore" not in [words[0] for words in reclaim.asked]


def test_a_refusal_is_said_and_changes_nothing(reclaim: FakeReclaim):
    reclaim.refusal = "a GPU works"
    with open_api(reclaim) as api:
        said = api.post(f"/snooze/give-back?link={sign()}")
        assert (said.status, b"Nothing was changed: " in said.body) == (409, True)
        assert api.get(f"/snooze/give-back?link={sign()}").status == 409
    assert not reclaim.added


@pytest.mark.parametrize("path", ["/snooze/give-back", "/snooze/restore"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_link_that_was_not_signed_here_or_is_over_is_refused(api: Api, reclaim: FakeReclaim, path: str, method: str):
    assert api.get(f"{path}?link=forged.x", method=method).status == 403
    assert api.get(f"{path}?link={sign(expires_at=AT)}", method=method).status == 410
    assert not reclaim.asked


def test_the_pages_are_in_the_language_of_the_notice(api: Api):
    page = api.get(f"/snooze/give-back?link={sign(language='zh')}").body.decode()
    assert all(word in page for word in ("会停止什么", "如何恢复", "立即暂停"))
