"""Bearer tokens and their roles; no error text contains a token."""

import os
from pathlib import Path

import pytest
from pydantic import SecretStr

from gpusteward.analyzer.active_source import ActiveSource
from gpusteward.analyzer.api.http.roles import Role, Roles, Tokens, parse_bearer, parse_tokens
from gpusteward.analyzer.explain.explainer import Explainer
from gpusteward.analyzer.runtime_settings import RuntimeSettings
from gpusteward.analyzer.settings.file import SettingsFile
from gpusteward.analyzer.settings.flags import Flags
from gpusteward.core.errors import ConfigurationError

VIEWER, OTHER, OPERATOR, ADMIN = ("v" * 20, "w" * 20, "o" * 20, "a" * 20)
NONE = SecretStr("")


@pytest.mark.parametrize(
    "text",
    [
        f"viewer: {VIEWER}\nviewer: {OTHER}\n\n# who may act\noperator: {OPERATOR}\nadmin: {ADMIN}\n",
        f"viewer:\n  - {VIEWER}\n  - {OTHER}\noperator: {OPERATOR}\nadmin:\n- {ADMIN}\n",
        f"{{viewer: [{VIEWER}, {OTHER}], operator: {OPERATOR}, admin: {ADMIN}}}",
        f"viewer: {VIEWER}, Viewer: {OTHER}, operator: {OPERATOR}, admin: {ADMIN}",
        f"viewer: [{VIEWER}, {OTHER}]\r\noperator: '{OPERATOR}'\r\nadmin: \"{ADMIN}\"\r\n",
    ],
)
def test_tokens_are_read_as_lines_as_yaml_and_from_one_variable(text: str) -> None:
    tokens = Tokens(parse_tokens(text, where="x"))
    assert len(tokens) == 4
    found = [tokens.find_role(token) for token in (VIEWER, OTHER, OPERATOR, ADMIN)]
    assert found == [Role.VIEWER, Role.VIEWER, Role.OPERATOR, Role.ADMIN]


@pytest.mark.parametrize("bearer", [None, "", "x", VIEWER[:-1], VIEWER + "v", VIEWER.upper(), "é" * 20, "\udce9" * 20])
def test_an_unknown_token_has_no_role(bearer: str | None) -> None:
    assert Tokens({VIEWER: Role.VIEWER}).find_role(bearer) is None
    assert Tokens({}).find_role(bearer) is None


def test_a_token_of_digits_is_not_parsed_as_a_number() -> None:
    digits = "00000000000000001234"
    assert Tokens(parse_tokens(f"admin: {digits}", where="x")).find_role(digits) is Role.ADMIN
    assert Tokens(parse_tokens(f"admin:\n  - {digits}", where="x")).find_role(digits) is Role.ADMIN


def test_each_role_includes_the_lower_ones() -> None:
    allowed = [[role.includes(needed) for needed in Role] for role in Role]
    assert allowed == [[True, False, False], [True, True, False], [True, True, True]]


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer abc", "abc"),
        ("bearer  abc ", "abc"),
        ("Basic abc", None),
        ("Bearer", None),
        ("Bearer ", None),
        ("", None),
        (None, None),
    ],
)
def test_the_token_is_taken_from_the_header(header: str | None, token: str | None) -> None:
    assert parse_bearer(header) == token


SECRET = "never-to-be-repeated"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (f"\nviewr: {SECRET}", "x line 2: a role is missing or unknown; did you mean 'viewer'?"),
        (f"{SECRET}: viewer", "x line 1: a role is missing or unknown; write ROLE: TOKEN"),
        (SECRET, "x line 1: write ROLE: TOKEN, with one of viewer, operator, admin"),
        ("viewer: short", "x line 1: a token of viewer cannot be used: at least 16 printable ASCII characters"),
        ("viewer:", "a token of viewer cannot be used"),
        ("viewer: {a: b}", "a token of viewer cannot be used"),
        (f"viewer: '{SECRET} two'", "a token of viewer cannot be used"),
        (f"viewer: {SECRET}\nadmin: {SECRET}", "x line 2: the same token is listed under viewer and admin"),
        (f"viewer: [{SECRET}", "is not YAML"),
        (f"viewer: *{SECRET}", "is not YAML: found undefined alias (hidden)"),
        (f"viewer: !{SECRET} x", "is not YAML: could not determine a constructor for the tag (hidden)"),
    ],
)
def test_an_error_text_never_contains_the_token(text: str, error: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_tokens(text, where="x")
    assert error in str(caught.value)
    assert SECRET not in str(caught.value)


def test_tokens_are_stored_as_digests_only() -> None:
    tokens = Tokens({SECRET: Role.ADMIN})
    assert SECRET not in repr(vars(tokens))


def test_a_changed_file_takes_effect_at_the_next_reload_and_an_invalid_one_is_refused_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="gpusteward")
    file = tmp_path / "tokens"
    file.write_text(f"viewer: {VIEWER}")
    roles = Roles(file, SecretStr(f"admin: {ADMIN}"))
    assert (roles.find_role(VIEWER), roles.find_role(ADMIN)) == (Role.VIEWER, Role.ADMIN)
    for time, text in ((1, f"operator: {OPERATOR}"), (2, "operator: x"), (3, "")):
        if text:
            file.write_text(text)
            os.utime(file, (time, time))
        else:
            file.unlink()
        roles.reload()
        roles.reload()
        assert (roles.find_role(VIEWER), roles.find_role(OPERATOR), roles.find_role(ADMIN)) == (
            None,
            Role.OPERATOR,
            Role.ADMIN,
        )
    assert [record.getMessage() for record in caplog.records] == ["tokens_reloaded", "tokens_refused", "tokens_refused"]
    assert roles.reloads_refused == 2


def test_a_configured_tokens_file_requires_tokens_even_while_it_is_empty(tmp_path: Path) -> None:
    empty = tmp_path / "tokens"
    empty.write_text("# no token yet\n")
    assert Roles(empty, NONE).are_set
    assert Roles(empty, NONE).find_role("") is None


def test_without_any_token_there_are_no_roles(tmp_path: Path) -> None:
    assert not Roles(None, NONE).are_set
    assert Roles(None, NONE).find_role("") is None
    with pytest.raises(ConfigurationError, match=r"check server\.tokens_file"):
        Roles(tmp_path / "missing", NONE)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666, 0o664])
def test_a_tokens_file_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "tokens.yaml"
    file.write_text(f"admin: {ADMIN}\n")
    file.chmod(mode)
    with pytest.raises(ConfigurationError, match=rf"tokens.yaml .*\(mode {mode:04o}\).*chmod go-w") as raised:
        Roles(file, NONE)
    assert "chmod go-w" in raised.value.text("zh")
    assert ADMIN not in str(raised.value)


def test_a_tokens_file_that_others_may_write_later_keeps_the_previous_tokens(tmp_path: Path) -> None:
    file = tmp_path / "tokens.yaml"
    file.write_text(f"viewer: {VIEWER}\n")
    file.chmod(0o600)
    roles = Roles(file, NONE)
    file.write_text(f"admin: {ADMIN}\n")
    file.chmod(0o666)
    roles.reload()
    assert (roles.find_role(VIEWER), roles.find_role(ADMIN), roles.reloads_refused) == (Role.VIEWER, None, 1)
    file.chmod(0o600)  # the same text: the change of its mode is noticed
    roles.reload()
    assert (roles.find_role(VIEWER), roles.find_role(ADMIN)) == (None, Role.ADMIN)


@pytest.mark.parametrize(("mode", "warnings"), [(0o600, 0), (0o440, 0), (0o644, 1)])
def test_a_tokens_file_that_everybody_may_read_is_used_and_logged(
    tmp_path: Path, mode: int, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A Secret of Kubernetes: a link into a folder that is replaced, read by the group."""
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "tokens.yaml").write_text(f"viewer: {VIEWER}\n")
    (tmp_path / "..data" / "tokens.yaml").chmod(mode)
    (tmp_path / "tokens.yaml").symlink_to("..data/tokens.yaml")
    caplog.set_level("WARNING", logger="gpusteward")
    flags = Flags(values=(("server.tokens_file", str(tmp_path / "tokens.yaml"), "--tokens-file"),))
    file = SettingsFile(flags, {}, directory=tmp_path)
    runtime = RuntimeSettings(file, source=ActiveSource(file.settings), explainer=Explainer(file.settings.ai))
    assert runtime.roles.find_role(VIEWER) is Role.VIEWER
    assert [record.getMessage() for record in caplog.records] == ["tokens_file_readable"] * warnings
