"""kubeconfig files, and what they can have wrong. Nothing here reaches a server."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpusteward.cli.kubectl.credentials import ApiServerAccess, ExecPlugin
from gpusteward.cli.kubectl.kubeconfig import KubeContext, list_contexts, read_context
from gpusteward.core.errors import ConfigurationError


def write(path: Path, *, current: str = "", **entries: Mapping[str, Any]) -> Path:
    """`entries`: the cluster, user or context of each name, by kind in the plural."""
    config: dict[str, Any] = {"current-context": current}
    for kind, named in entries.items():
        config[kind] = [{"name": name, kind[:-1]: entry} for name, entry in named.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config))
    return path


def make_context(user: Mapping[str, Any] | None = None, **cluster: Any) -> KubeContext:
    return KubeContext("prod", "", {"server": "https://127.0.0.1:6443", **cluster}, user or {})


def test_of_several_files_the_first_entry_of_a_name_counts(tmp_path: Path) -> None:
    one = write(
        tmp_path / "one" / "config",
        clusters={"c": {"server": "https://one", "certificate-authority": "ca.crt"}},
        contexts={"prod": {"cluster": "c", "user": "ann", "namespace": "vision"}},
    )
    two = write(
        tmp_path / "two" / "config",
        current="prod",
        clusters={"c": {"server": "https://two"}, "d": {"server": "https://two"}},
        users={"ann": {"exec": {"command": "./plugin"}, "tokenFile": "/token"}},
        contexts={"prod": {"cluster": "d", "user": "ann"}, "test": {"cluster": "d", "user": ""}},
    )
    environ = {"KUBECONFIG": f"{one}::{tmp_path}/missing:{two}"}
    found = read_context(environ=environ)
    assert (found.name, found.namespace, found.cluster["server"]) == ("prod", "vision", "https://one")
    assert found.cluster["certificate-authority"] == f"{tmp_path}/one/ca.crt"
    assert found.user == {"exec": {"command": f"{tmp_path}/two/plugin"}, "tokenFile": "/token"}
    assert read_context(None, "test", environ=environ).user == {}
    assert list_contexts(environ=environ) == ["prod", "test"]
    assert read_context(str(two), environ=environ).cluster["server"] == "https://two"


def test_the_file_of_the_home_folder_is_the_default(tmp_path: Path) -> None:
    entries = {"clusters": {"c": {"server": "https://a"}}, "contexts": {"prod": {"cluster": "c"}}}
    write(tmp_path / ".kube" / "config", current="prod", **entries)
    assert read_context(environ={"HOME": str(tmp_path)}).name == "prod"
    with pytest.raises(ConfigurationError, match="no kubeconfig at /nowhere"):
        read_context(environ={"HOME": "/nowhere"})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("users: [", "not YAML, line 1"),
        ("users: 2027-13-45", "not YAML"),
        ("users: !!bool secret", "not YAML"),
        ("- a", "not what a kubeconfig has"),
        ("users: {}\nclusters: 7", "clusters is not"),
        ("users: [{name: ann, user: secret-token}]", r"users\[0\] is not"),
        ("{}", "no current context"),
        ("current-context: prod", "no context 'prod'"),
        ("contexts: [{name: prod, context: {cluster: c}}]\ncurrent-context: prod", "names the cluster 'c'"),
        (
            "contexts: [{name: prod, context: {cluster: c, user: u}}]\nclusters: [{name: c}]\ncurrent-context: prod",
            "names the user 'u'",
        ),
    ],
)
def test_what_is_wrong_is_named_without_repeating_secrets(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=reason) as raised:
        read_context(str(path))
    assert "secret" not in str(raised.value)


def test_a_missing_context_suggests_the_nearest(tmp_path: Path) -> None:
    path = write(tmp_path / "config", contexts={"production": {}})
    with pytest.raises(ConfigurationError, match="production"):
        read_context(str(path), "productoin")


@pytest.mark.parametrize(
    ("cluster", "user", "reason"),
    [
        ({"server": "api.example.com"}, {}, "not an http or https URL"),
        ({"proxy-url": "socks5://a:1"}, {}, "only http:// proxies"),
        ({"proxy-url": "https://a:1"}, {}, "only http:// proxies"),
        ({}, {"auth-provider": {"name": "gcp"}}, "exec credential plugin"),
        ({}, {"as": "ann", "as-groups": ["a", "b"]}, "several groups"),
    ],
)
def test_what_cannot_be_used_is_refused_at_once(cluster: dict[str, Any], user: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        ApiServerAccess(make_context(user, **cluster))


@pytest.mark.parametrize(
    ("cluster", "user", "reason"),
    [
        ({"certificate-authority-data": "%"}, {}, "certificate-authority-data of context 'prod' is not base64"),
        ({"certificate-authority": "/missing"}, {}, "no such file"),
        ({"certificate-authority-data": "YWJj"}, {}, "certificate-authority of context 'prod' cannot be used"),
        ({}, {"client-certificate-data": "YWJj", "client-key-data": "YWJj"}, "client-certificate of context 'prod'"),
        ({}, {"token": "two words"}, "not one line without blanks"),
        ({}, {"tokenFile": "/missing"}, "no such file"),
    ],
)
def test_unusable_credentials_are_named(cluster: dict[str, Any], user: dict[str, Any], reason: str) -> None:
    access = ApiServerAccess(make_context(user, **cluster))
    with pytest.raises(ConfigurationError, match=reason):
        use(access)


def use(access: ApiServerAccess) -> None:
    access.make_headers()
    access.open(access.server)


def test_credentials_are_sent_over_tls_only() -> None:
    user = {"token": "t" * 20, "as": "ann", "as-groups": ["team"], "as-uid": "7"}
    impersonation = {"Impersonate-User": "ann", "Impersonate-Group": "team", "Impersonate-Uid": "7"}
    secure = ApiServerAccess(make_context(user)).make_headers()
    assert secure == {**impersonation, "Authorization": f"Bearer {'t' * 20}"}
    assert ApiServerAccess(make_context(user, server="http://127.0.0.1:8001")).make_headers() == impersonation
    assert ApiServerAccess(make_context(user), user="bob").make_headers()["Impersonate-User"] == "bob"
    basic = ApiServerAccess(make_context({"username": "ann", "password": "p"})).make_headers()
    assert basic["Authorization"].startswith("Basic ")


def make_plugin(code: str, **spec: Any) -> ExecPlugin:
    plugin = {"command": sys.executable, "args": ["-c", code], "installHint": "install it", **spec}
    return ExecPlugin(make_context(), plugin, {})


def print_credential(**status: str) -> str:
    return f"print({json.dumps({'kind': 'ExecCredential', 'status': status})!r})"


@pytest.mark.parametrize(
    ("code", "spec", "reason"),
    [
        ("", {"command": "/no/such/program"}, "no such file or directory; install it"),
        ("raise SystemExit(3)", {}, "exit code 3; install it"),
        ("print('{}')", {}, "no ExecCredential"),
        ("print('x')", {}, "no ExecCredential"),
        (print_credential(token="two words"), {}, "no ExecCredential"),
        (print_credential(token="a", expirationTimestamp="tomorrow"), {}, "no ExecCredential"),
        ("", {"interactiveMode": "Always"}, "needs a terminal"),
    ],
)
def test_a_credential_plugin_that_fails_is_named(code: str, spec: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        make_plugin(code, **spec).read()


def test_a_credential_is_used_until_it_expires(tmp_path: Path) -> None:
    count = f"open({str(tmp_path / 'runs')!r}, 'a').write('x');"
    lasting = make_plugin(count + print_credential(token="a", expirationTimestamp="2100-01-01T00:00:00Z"))
    assert (lasting.read().token, lasting.read().token) == ("a", "a")
    expired = make_plugin(count + print_credential(token="b", expirationTimestamp="2020-01-01T00:00:00Z"))
    assert (expired.read().token, expired.read().token) == ("b", "b")
    assert (tmp_path / "runs").read_text() == "xxx"
