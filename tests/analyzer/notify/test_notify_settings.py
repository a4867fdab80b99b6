"""`notify.*`, `alertmanager.*`, `outbox.*`, `control.*`: accepted and rejected values."""

from pathlib import Path

import pytest

from gpusteward.analyzer.notify.http_post import post
from gpusteward.analyzer.notify.outbox.records import DeliveryError
from gpusteward.analyzer.settings.effective import KNOWN
from gpusteward.analyzer.settings.fields import describe_allowed
from gpusteward.analyzer.settings.file import SettingsFile
from gpusteward.analyzer.settings.masked import mask_settings
from gpusteward.analyzer.settings.notify import AlertmanagerSettings, NotifySettings, secrets_of, urls_of
from gpusteward.core.errors import ConfigurationError
from tests.analyzer.settings.test_settings import read
from tests.fakes.receivers import Receiver
from tests.http.servers import response, serving

HOOK = "https://open.feishu.cn/open-apis/bot/v2/hook/0a1b-secret"
FILE = f"""\
control: {{enabled: true, api_url: "http://control/api", secret: "sign-secret"}}
notify:
  channels:
    feishu: {HOOK}
    ml-team: >
      mailto://user:mail-secret@example.com
      json://127.0.0.1/json-secret
  secrets: {{feishu: bot-secret}}
  namespaces: {{ml: ml-team, '*': feishu}}
  quiet_hours: 22:00-08:00
  time_zone: Asia/Shanghai
alertmanager:
  url: http://one:9093, http://two:9093
  password: am-secret
"""


def test_a_typical_file_is_read(tmp_path: Path):
    settings = read(tmp_path, FILE).settings
    assert urls_of(settings.notify.channels["feishu"]) == (HOOK,)
    assert len(urls_of(settings.notify.channels["ml-team"])) == 2
    assert settings.notify.namespaces["*"] == "feishu"
    assert settings.alertmanager.url == ["http://one:9093", "http://two:9093"]


def test_channels_can_be_set_by_environment_variables(tmp_path: Path):
    environ = {"GPUSTEWARD_NOTIFY__CHANNELS": f"feishu: {HOOK}", "GPUSTEWARD_ALERTMANAGER__URL": "http://one:9093"}
    environ["GPUSTEWARD_NOTIFY__SECRETS"] = "feishu: bot-secret"
    settings = read(tmp_path, "", environ).settings
    assert urls_of(settings.notify.channels["feishu"]) == (HOOK,)
    assert secrets_of(settings.notify, "feishu") == ("bot-secret",)
    assert settings.alertmanager.url == ["http://one:9093"]


def test_secrets_are_never_shown(tmp_path: Path):
    file: SettingsFile = read(tmp_path, FILE)
    shown = str(mask_settings(file.effective)) + str(file.settings) + repr(file.settings)
    assert "ml-team" in shown
    for secret in ("0a1b-secret", "mail-secret", "json-secret", "sign-secret", "am-secret", "bot-secret"):
        assert secret not in shown


def test_every_setting_has_a_description_and_its_allowed_values():
    for path, field in KNOWN.items():
        if path.split(".")[0] in ("notify", "alertmanager", "outbox", "control"):
            assert field.description, path
            assert describe_allowed(field), path


@pytest.mark.parametrize(
    "wrong",
    [
        {"channels": {"a b": "json://x"}},
        {"channels": {"ops": "not a url"}},
        {"channels": {"ops": ""}},
        {"namespaces": {"*": "missing"}},
        {"namespaces": {"ml": "missing"}},
        {"channels": {"ops": "json://x"}, "languages": {"missing": "en"}},
        {"secrets": {"missing": "s"}},
        {"channels": {"ops": "json://x"}, "secrets": {"ops": "s"}},
        {"channels": {"ops": HOOK}, "secrets": {"ops": "one two"}},
        {"channels": {"ops": HOOK}, "secrets": {"ops": ""}},
        {"quiet_hours": "night"},
        {"time_zone": "Mars/Base"},
        {"digest": "09:00"},
    ],
)
def test_invalid_settings_are_rejected_without_repeating_a_secret(wrong: dict):
    with pytest.raises(ValueError, match=r"\w") as refused:
        NotifySettings.model_validate(wrong)
    assert "not a url" not in str(refused.value)


def test_an_invalid_channel_is_reported_with_its_line_and_without_its_value(tmp_path: Path):
    with pytest.raises(ConfigurationError, match=r"notify\.channels.*line 2") as refused:
        read(tmp_path, "notify:\n  channels: {ops: s3cret-no-url}")
    assert "s3cret" not in str(refused.value)


def test_a_label_needs_a_valid_prometheus_name():
    with pytest.raises(ValueError, match="not a valid label name"):
        AlertmanagerSettings(labels={"a-b": "x"})


def test_a_proxy_from_the_environment_is_used(monkeypatch: pytest.MonkeyPatch):
    with Receiver() as proxy:
        monkeypatch.setenv("http_proxy", f"http://user:pw@127.0.0.1:{proxy.port}")
        monkeypatch.setenv("no_proxy", "other.example")
        post("http://control.example:81/api?x=1", b"{}", headers={}, timeout=5)
    call = proxy.accepted[0]
    assert call.path == "http://control.example:81/api?x=1"
    assert call.headers["host"] == "control.example:81"
    assert call.headers["proxy-authorization"] == "Basic dXNlcjpwdw=="


@pytest.mark.parametrize("address", ["https://host:99999/secret", "https://host:x/secret", "https://[::1/secret"])
def test_an_unusable_webhook_address_is_rejected_and_not_repeated(tmp_path: Path, address: str):
    with pytest.raises(ConfigurationError) as refused:
        read(tmp_path, f'notify: {{channels: {{ops: "{address}"}}}}')
    assert "secret" not in str(refused.value)


def test_an_invalid_proxy_address_fails_only_the_call(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("http_proxy", "http://proxy:nonsense")
    with pytest.raises(DeliveryError, match="the host or the port is invalid"):
        post("http://example.test/", b"", headers={}, timeout=1)


def test_a_delivered_message_is_not_repeated_because_of_the_encoding_of_the_response():
    with serving(response(b"x", "Content-Encoding: br")) as server:
        assert post(server.url, b"{}", headers={}, timeout=5) == b""
