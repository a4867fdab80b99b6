"""Settings of sign-in: a mistake is an error, never more access than meant."""

import pytest
from pydantic import ValidationError

from gpusteward.analyzer.settings.auth import AuthSettings
from gpusteward.analyzer.settings.effective import KNOWN, combine_layers
from gpusteward.analyzer.settings.layers import read_document
from gpusteward.analyzer.settings.masked import mask_settings
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.core.errors import ConfigurationError
from gpusteward.yaml_lines import parse_yaml

RULE = {"groups": ["platform"], "role": "admin"}
ISSUER = {"issuer": "https://login.example.com", "audience": ["gpusteward"]}


@pytest.mark.parametrize(
    "auth",
    [
        {"rules": [{"groups": ["a"], "role": "viewer", "namespace": ["team"]}]},  # misspelled
        {"rules": [{"groups": ["a"], "role": "viewer", "namespaces": []}]},
        {"rules": [{"groups": ["a"], "role": "viewer", "namespaces": ["a", ""]}]},
        {"rules": [{"groups": ["a"], "role": "viewer", "namespaces": ["[ab]*"]}]},
        {"rules": [{"groups": ["a"], "role": "operator", "namespaces": ["team"]}]},
        {"rules": [{"role": "admin"}]},
        {"rules": [{"groups": [], "role": "admin"}]},
        {"rules": [{"groups": ["a"]}]},
        {"rules": [{"groups": ["a"], "role": "root"}]},
        {"proxy": {"addresses": ["10.0.0.1"]}},  # without rules
        {"oidc": ISSUER},
        {"proxy": {"addresses": ["0.0.0.0/0"]}, "rules": [RULE]},
        {"proxy": {"addresses": ["::/0"]}, "rules": [RULE]},
        {"proxy": {"addresses": ["10.0.0.1/8"]}, "rules": [RULE]},
        {"proxy": {"addresses": ["proxy.example.com"]}, "rules": [RULE]},
        {"proxy": {"user_header": "Authorization"}},
        {"proxy": {"user_header": "X User"}},
        {"proxy": {"user_header": ""}},
        {"proxy": {"groups_header": "X-Forwarded-User"}},
        {"oidc": {"issuer": "https://login.example.com"}, "rules": [RULE]},  # for any application
        {"oidc": ISSUER | {"issuer": "http://login.example.com"}, "rules": [RULE]},
        {"oidc": ISSUER | {"jwks_url": "http://login.example.com/keys"}, "rules": [RULE]},
        {"oidc": ISSUER | {"jwks_url": "file://server/keys"}, "rules": [RULE]},
        {"oidc": ISSUER | {"algorithms": ["HS256"]}, "rules": [RULE]},
        {"oidc": ISSUER | {"algorithms": ["none"]}, "rules": [RULE]},
        {"oidc": ISSUER | {"algorithms": []}, "rules": [RULE]},
    ],
)
def test_never_starts_with(auth: dict):
    with pytest.raises(ValidationError):
        AuthSettings.model_validate(auth)


def test_never_limits_viewers_while_everybody_may_read_everything():
    rule = {"groups": ["a"], "role": "viewer", "namespaces": ["team"]}
    with pytest.raises(ValidationError):
        Settings.model_validate({"server": {"anonymous_reads": "always"}, "auth": {"rules": [rule]}})


FILE = """
auth:
  proxy: {addresses: [10.0.3.7]}
  rules:
    - {groups: [Team Vision], role: viewer, namespaces: vision-*}
    - {users: ann@example.com, role: admin}
"""


def test_rules_are_read_from_the_file_and_shown():
    effective = combine_layers(read_document(parse_yaml(FILE, where="config.yaml"), KNOWN, where="config.yaml"))
    first, second = effective.settings.auth.rules
    assert (first.groups, first.namespaces, second.users) == (["Team Vision"], ["vision-*"], ["ann@example.com"])
    shown = {each.path: each.value for each in mask_settings(effective)}
    assert shown["auth.rules"][1]["role"] == "admin"


def test_an_error_in_a_rule_names_the_file_and_the_key():
    text = FILE.replace("namespaces", "namespace")
    with pytest.raises(ConfigurationError, match=r"auth\.rules.*config\.yaml line 5.*namespace"):
        combine_layers(read_document(parse_yaml(text, where="config.yaml"), KNOWN, where="config.yaml"))
