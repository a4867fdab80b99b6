"""Settings of reclaim: off unless a person says otherwise, and refused where it could not be undone."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from gpusteward.analyzer.server.serve import require_kubernetes
from gpusteward.analyzer.setting_values import SecretFile
from gpusteward.analyzer.settings.effective import KNOWN
from gpusteward.analyzer.settings.fields import is_secret
from gpusteward.analyzer.settings.reclaim import ReclaimSettings
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.core.errors import ConfigurationError

KEY = "0123456789abcdef"


def test_reclaim_is_off_by_default():
    assert Settings().reclaim.mode == "off"
    assert not Settings().reclaim.is_on


@pytest.mark.parametrize(
    "reclaim",
    [
        {"mode": "on"},
        {"mode": True},
        {"namespaces": ["team-*"]},
        {"namespaces": []},
        {"namespaces": " "},
        {"protected_namespaces": ["Kube"]},
        {"protected_namespaces": ["[a-z]*"]},
        {"namespace": "a/b"},
        {"cool_down_minutes": -1},
        {"signing_key": "short"},
    ],
)
def test_never_starts_with(reclaim: dict):
    with pytest.raises(ValidationError):
        ReclaimSettings.model_validate(reclaim)


@pytest.mark.parametrize("others", [{"kubernetes": {"owners": "never"}}, {"ledger": {"enabled": False}}])
def test_never_enforces_without_owners_or_a_journal(others: dict):
    with pytest.raises(ValidationError):
        Settings.model_validate({"reclaim": {"mode": "enforce"}, **others})
    assert Settings.model_validate({"reclaim": {"mode": "observe"}, **others}).reclaim.is_on


def test_never_enforces_without_an_api_server():
    enforce = Settings.model_validate({"reclaim": {"mode": "enforce"}})
    with pytest.raises(ConfigurationError) as raised:
        require_kubernetes(enforce, {})
    assert "reclaim.mode is enforce, but Kubernetes cannot be reached" in str(raised.value)
    require_kubernetes(Settings.model_validate({"reclaim": {"mode": "observe"}}), {})
    with_server = {"reclaim": {"mode": "enforce"}, "kubernetes": {"api_url": "http://127.0.0.1:8001"}}
    require_kubernetes(Settings.model_validate(with_server), {})


@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", "gpu-operator", "openshift-ingress", "gpusteward"])
def test_namespaces_of_the_cluster_are_protected_by_default(namespace: str):
    assert ReclaimSettings().is_protected(namespace)


def test_namespaces_of_teams_are_not_protected_by_default():
    assert not ReclaimSettings().is_protected("vision")
    assert not ReclaimSettings().is_protected("my-kube-system")
    assert ReclaimSettings.model_validate({"protected_namespaces": "vision, prod-*"}).is_protected("prod-chat")
    assert not ReclaimSettings.model_validate({"protected_namespaces": ""}).is_protected("kube-system")


def test_namespaces_limit_actions_only_where_they_are_set():
    assert not ReclaimSettings().is_left_out("vision")
    limited = ReclaimSettings.model_validate({"namespaces": "vision, chat"})
    assert [limited.is_left_out(each) for each in ("vision", "chat", "vision-2")] == [False, False, True]


def test_the_signing_key_is_never_shown_and_may_come_from_a_file(tmp_path: Path):
    settings = Settings.model_validate({"reclaim": {"signing_key": KEY}})
    assert KEY not in repr(settings)
    assert is_secret(KNOWN["reclaim.signing_key"])
    (tmp_path / "key").write_text(f"{KEY}\n")
    from_file = ReclaimSettings.model_validate({"signing_key": SecretFile(tmp_path / "key")})
    assert from_file.read_signing_key() == KEY
    (tmp_path / "key").write_text("short")
    with pytest.raises(ValueError, match="too short"):
        from_file.read_signing_key()
