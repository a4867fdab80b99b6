"""Signed links of notices: only what was signed here counts, only in time, and only for its workload."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusteward.analyzer.notify.links import (
    LINK_SECONDS,
    ExpiredLinkError,
    InvalidLinkError,
    LinkSigner,
    SnoozeLink,
    make_details_button,
    make_snooze_buttons,
)
from gpusteward.analyzer.setting_values import SecretFile
from gpusteward.analyzer.settings.reclaim import ReclaimSettings
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.node.containers import WorkloadKey

NOW = 1_790_000_000.0
KEY = "0123456789abcdef"
WORKLOAD = WorkloadKey("Deployment", "nlp", "chat", "eu")
LINK = SnoozeLink("Deployment", "nlp", "chat", "eu", "ops", "zh", int(NOW + 60))


def test_a_link_names_its_workload_until_it_expires():
    signer = LinkSigner(b"key")
    text = signer.sign(LINK)
    assert signer.verify(text, now=NOW) == LINK
    assert LINK.workload == WORKLOAD
    with pytest.raises(ExpiredLinkError):
        signer.verify(text, now=NOW + 60)


@given(st.text(max_size=300))
def test_no_other_text_is_a_link(text: str):
    with pytest.raises(InvalidLinkError):
        LinkSigner(b"key").verify(text, now=NOW)


def test_a_changed_link_is_never_accepted():
    signer = LinkSigner(b"key")
    text = signer.sign(LINK)
    for place in range(len(text)):
        changed = text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]
        try:
            found = signer.verify(changed, now=NOW)
        except (InvalidLinkError, ExpiredLinkError):
            continue
        assert found == LINK, "only unused bits at the end of the base64 text may differ"


def test_a_link_of_another_key_is_never_accepted():
    with pytest.raises(InvalidLinkError):
        LinkSigner().verify(LinkSigner().sign(LINK), now=NOW)


def test_two_replicas_with_the_same_key_accept_each_others_links(tmp_path: Path):
    (tmp_path / "key").write_text(KEY)
    one = LinkSigner.open(ReclaimSettings.model_validate({"signing_key": KEY}))
    other = LinkSigner.open(ReclaimSettings.model_validate({"signing_key": SecretFile(tmp_path / "key")}))
    assert other.verify(one.sign(LINK), now=NOW) == LINK
    assert KEY not in repr(one)


def test_a_missing_key_file_is_an_error_in_plain_words(tmp_path: Path):
    settings = ReclaimSettings.model_validate({"signing_key": SecretFile(tmp_path / "none")})
    with pytest.raises(ConfigurationError, match=r"reclaim\.signing_key_file.*cannot be read"):
        LinkSigner.open(settings)


def test_buttons_lead_to_the_public_address():
    signer = LinkSigner()
    buttons = make_snooze_buttons(
        signer, "https://gpu.example.com/base/", WORKLOAD, channel="ops", language="en", now=NOW
    )
    assert [each.label for each in buttons] == ["Snooze for 4 h", "Snooze for 8 h", "Snooze for 24 h"]
    start, _, rest = buttons[0].url.partition("/snooze?link=")
    assert start == "https://gpu.example.com/base"
    token, _, query = rest.partition("&")
    assert query == "hours=4"
    assert signer.verify(token, now=NOW + LINK_SECONDS - 1).workload == WORKLOAD
    details = make_details_button("https://gpu.example.com", WorkloadKey("Job", "a", "b/c"), language="zh")
    assert (details.label, details.url) == ("查看详情", "https://gpu.example.com/ui/#/workloads/-/Job/a/b%2Fc")
    named = make_details_button("https://gpu.example.com/", WorkloadKey("Job", "a", "b", "east"), language="en")
    assert named.url == "https://gpu.example.com/ui/#/workloads/east/Job/a/b"
