"""`kubectl gpusteward` on a real API server: its proxy, real RBAC, real tokens, the audit log."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpusteward.cli.kubectl.main import main
from tests.cli.kubectl.site import ConnectProxy, Site, add_analyzer, has_endpoint, running_site
from tests.kubernetes.cluster import RBAC, Cluster, Json, wait_for

pytestmark = pytest.mark.slow
COMMANDS = (["idle"], ["top", "--view", "gpus"], ["explain", "vision/trainer"], ["report"], ["ps", "--node", "n1"])
TOKEN_RULE: Json = {
    "apiGroups": [""],
    "resources": ["serviceaccounts/token"],
    "resourceNames": ["gpusteward-viewer"],
    "verbs": ["create"],
}
HEADER = "X-Gpusteward-Authorization"


@pytest.fixture(scope="module")
def site(kubernetes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(kubernetes, tmp_path_factory.mktemp("site")) as running:
        yield running


@pytest.fixture
def run(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[str, str]]:
    monkeypatch.setenv("PATH", f"{site.kubectl}:{os.environ['PATH']}")

    def run_plugin(kubeconfig: Path, *words: str, code: int = 0) -> tuple[str, str]:
        command, *rest = words
        found = main([command, "--kubeconfig", str(kubeconfig), *rest])
        printed = capsys.readouterr()
        assert found == code, printed
        return printed.out, printed.err

    return run_plugin


Run = Callable[..., tuple[str, str]]


def list_namespaces(out: str) -> set[str]:
    return {row["namespace"] for row in json.loads(out)}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_a_viewer_needs_nothing_but_a_kubeconfig(command: list[str], site: Site, run: Run) -> None:
    person, kubeconfig = site.add_person("gpusteward-viewer")
    out, err = run(kubeconfig, *command, "--analyzer", site.namespace, "-o", "json")
    assert json.loads(out)
    assert err == ""
    events = site.cluster.read_audit(person.user)
    done = {(event["verb"], event["objectRef"]["resource"], event["objectRef"].get("subresource")) for event in events}
    assert done == {("list", "services", None), ("create", "serviceaccounts", "token"), ("get", "services", "proxy")}
    assert all(event["responseStatus"]["code"] in (200, 201) for event in events)


def test_the_namespace_of_the_context_is_searched_where_the_cluster_may_not_be(site: Site, run: Run) -> None:
    _, kubeconfig = site.add_person("gpusteward-viewer", namespace=site.namespace)
    out, _ = run(kubeconfig, "idle", "-o", "json")
    assert len(list_namespaces(out)) > 1
    out, _ = run(kubeconfig, "idle", "-o", "json", "-n", "vision")
    assert list_namespaces(out) == {"vision"}
    out, _ = run(kubeconfig, "idle", "-o", "json", "-n", "vision", "-A")
    assert len(list_namespaces(out)) > 1


def test_without_a_role_the_missing_rule_is_named(site: Site, run: Run) -> None:
    person, kubeconfig = site.add_person(namespace=site.namespace)
    _, err = run(kubeconfig, "idle", code=1)
    assert 'cannot list resource "services"' in err
    site.bind("gpusteward-kubectl", person.user)
    _, err = run(kubeconfig, "idle", code=1)
    assert 'cannot create resource "serviceaccounts/token"' in err
    assert f"--namespace {site.namespace} --role gpusteward-viewer" in err
    assert "\n" not in err.strip()


def test_a_person_of_one_namespace_sees_that_namespace(site: Site, run: Run) -> None:
    site.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vision"}})
    site.add_viewer_account("vision")
    _, kubeconfig = site.add_person("gpusteward-kubectl", namespace="vision", rules=[TOKEN_RULE])
    out, err = run(kubeconfig, "idle", "-o", "json", "--analyzer", site.namespace)
    assert list_namespaces(out) == {"vision"}
    assert err == "gpusteward: showing the namespace vision only, as your role allows\n"
    _, err = run(kubeconfig, "explain", "chat/chat", "--analyzer", site.namespace, code=1)
    assert "no workload" in err


def test_several_analyzers_are_named(site: Site, run: Run) -> None:
    other = site.cluster.add_namespace("other")
    for name in ("one", "two"):
        add_analyzer(site.cluster, other, name)
    person, kubeconfig = site.add_person("gpusteward-viewer")
    about = {"name": site.cluster.make_name("list-services")}
    rule = {"apiGroups": [""], "resources": ["services"], "verbs": ["list"]}
    subject = {"kind": "User", "name": person.user, "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", **about}
    site.cluster.apply(
        {"apiVersion": RBAC, "kind": "ClusterRole", "metadata": about, "rules": [rule]},
        {
            "apiVersion": RBAC,
            "kind": "ClusterRoleBinding",
            "metadata": about,
            "roleRef": reference,
            "subjects": [subject],
        },
    )
    _, err = run(kubeconfig, "idle", code=2)
    assert all(f"{name}" in err for name in (f"{other}/one", f"{other}/two", f"{site.namespace}/gpusteward-analyzer"))
    assert "--analyzer" in err
    out, _ = run(kubeconfig, "idle", "-o", "json", "--analyzer", f"{site.namespace}/gpusteward-analyzer")
    assert json.loads(out)


def test_a_cluster_without_an_analyzer_is_reported(site: Site, run: Run) -> None:
    empty = site.cluster.add_namespace("empty")
    rule = {"apiGroups": [""], "resources": ["services"], "verbs": ["list"]}
    _, kubeconfig = site.add_person(namespace=empty, rules=[rule])
    _, err = run(kubeconfig, "idle", "--analyzer", empty, code=1)
    assert "no analyzer is installed" in err
    assert "app.kubernetes.io/component=analyzer" in err


def test_an_analyzer_without_a_ready_pod_is_reported(site: Site, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    _, kubeconfig = site.add_person("gpusteward-viewer")
    name = {"name": "gpusteward-analyzer", "namespace": site.namespace}
    (before,) = [one for one in site.cluster.list_pods(site.namespace) if one["metadata"]["name"] == name["name"]]
    item = {"apiVersion": "v1", "kind": "Pod", "metadata": name}
    site.cluster.set_status(item, {"conditions": [{"type": "Ready", "status": "False"}]})
    try:
        words = ["idle", "--kubeconfig", str(kubeconfig), "--analyzer", site.namespace]
        wait_for(lambda: main(words) != 0)
        capsys.readouterr()
        _, err = run(kubeconfig, "idle", "--analyzer", site.namespace, code=1)
        assert "no ready pod" in err
    finally:
        site.cluster.set_status(item, {"conditions": before["status"]["conditions"]})
        wait_for(lambda: has_endpoint(site.cluster, site.namespace, name["name"]))


def test_the_credentials_of_the_kubeconfig_are_not_sent_to_the_analyzer(site: Site, run: Run) -> None:
    person, kubeconfig = site.add_person("gpusteward-viewer")
    site.proxy.forwarded.clear()
    run(kubeconfig, "idle", "--analyzer", site.namespace)
    sent = b"".join(site.proxy.forwarded)
    assert HEADER.encode() in sent
    assert b"\r\nAuthorization:" not in sent
    assert (person.folder / "token").read_bytes() not in sent


def make_exec(site: Site, token: str, **spec: Any) -> Json:
    """A credential plugin that checks what it is given."""
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": token, "expirationTimestamp": "2100-01-01T00:00:00Z"},
    }
    script = site.folder / "plugin.py"
    script.write_text(
        "import json, os, sys\n"
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "assert info['kind'] == 'ExecCredential' and info['spec']['interactive'] is False\n"
        f"assert info['spec']['cluster']['server'] == {site.cluster.url!r}\n"
        "assert os.environ['REGION'] == 'x' and sys.argv[1:] == ['get-token']\n"
        f"print({json.dumps(credential)!r})\n"
    )
    return {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(script), "get-token"],
        "env": [{"name": "REGION", "value": "x"}],
        "provideClusterInfo": True,
        "interactiveMode": "Never",
        **spec,
    }


@pytest.mark.parametrize("kind", ["tokenFile", "exec", "certificate", "certificate data"])
def test_every_kind_of_credential_of_a_kubeconfig(kind: str, site: Site, run: Run) -> None:
    person, _ = site.add_person("gpusteward-viewer")
    site.bind("gpusteward-viewer", "ann")
    issued = site.authority.issue_cert("ann.example.com", common_name="ann")
    pair = site.folder / "ann.crt", site.folder / "ann.key"
    issued.cert_chain_pems[0].write_to_path(str(pair[0]))
    issued.private_key_pem.write_to_path(str(pair[1]))
    encoded = [base64.b64encode(path.read_bytes()).decode() for path in pair]
    users: dict[str, Json] = {
        "tokenFile": {"tokenFile": os.path.relpath(person.folder / "token", site.folder)},
        "exec": {"exec": make_exec(site, (person.folder / "token").read_text())},
        "certificate": {"client-certificate": "ann.crt", "client-key": "ann.key"},
        "certificate data": {"client-certificate-data": encoded[0], "client-key-data": encoded[1]},
    }
    kubeconfig = site.write_kubeconfig("someone", users[kind], namespace=site.namespace)
    out, _ = run(kubeconfig, "idle", "-o", "json")
    assert json.loads(out)


def test_ways_to_the_api_server(site: Site, run: Run) -> None:
    person, _ = site.add_person("gpusteward-viewer")
    user = {"token": (person.folder / "token").read_text()}
    authority = base64.b64encode(site.cluster.ca_path.read_bytes()).decode()
    address = f"{site.cluster.address}:{site.cluster.port}"
    proxy = ConnectProxy()
    proxy.targets[address] = site.cluster.address, site.cluster.port
    ways: list[tuple[Json, int]] = [
        ({"certificate-authority": None, "certificate-authority-data": authority}, 0),
        ({"certificate-authority": None}, 1),
        ({"certificate-authority": None, "insecure-skip-tls-verify": True}, 0),
        ({"tls-server-name": "another.example.com"}, 1),
        ({"tls-server-name": site.cluster.address}, 0),
        ({"proxy-url": f"http://127.0.0.1:{proxy.port}"}, 0),
        ({"proxy-url": "socks5://127.0.0.1:1"}, 1),
    ]
    for cluster, code in ways:
        kubeconfig = site.write_kubeconfig("someone", user, namespace=site.namespace, cluster=cluster)
        run(kubeconfig, "idle", code=code)
    assert set(proxy.connected) == {address}
    proxy.close()


def test_impersonation(site: Site, run: Run) -> None:
    rule = {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]}
    person = site.cluster.add_account(site.namespace, [rule])
    site.bind("gpusteward-viewer", "impersonated")
    user = {"token": (person.folder / "token").read_text()}
    kubeconfig = site.write_kubeconfig("someone", user, namespace=site.namespace)
    run(kubeconfig, "idle", code=1)
    run(kubeconfig, "idle", "--as", "impersonated")
    run(site.write_kubeconfig("someone", {**user, "as": "impersonated"}, namespace=site.namespace), "idle")


def test_expired_credentials_are_reported(site: Site, run: Run) -> None:
    kubeconfig = site.write_kubeconfig("someone", {"token": "expired"}, namespace=site.namespace)
    _, err = run(kubeconfig, "idle", code=1)
    assert "does not accept the credentials of the kubeconfig" in err
    assert "expired" not in err


def test_another_token_for_the_analyzer_replaces_the_role(site: Site, run: Run, tmp_path: Path) -> None:
    person, kubeconfig = site.add_person("gpusteward-kubectl")
    token = tmp_path / "token"
    token.write_text(site.create_token(site.namespace, "gpusteward-operator"))
    out, _ = run(kubeconfig, "idle", "-o", "json", "--analyzer", site.namespace, "--token-file", str(token))
    assert json.loads(out)
    assert not [one for one in site.cluster.read_audit(person.user) if one["verb"] == "create"]


def kubectl(site: Site, kubeconfig: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The real kubectl, which finds the plugin of this installation on the PATH."""
    path = f"{site.kubectl}:{Path(sys.executable).parent}:/usr/bin:/bin"
    environ = {"PATH": path, "HOME": str(site.folder), "KUBECONFIG": str(kubeconfig), "LANG": "C.UTF-8"}
    command = [str(site.kubectl / "kubectl"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environ)


def test_kubectl_finds_and_runs_the_plugin(site: Site) -> None:
    _, kubeconfig = site.add_person("gpusteward-viewer", namespace=site.namespace)
    done = kubectl(site, kubeconfig, "gpusteward", "idle")
    assert done.returncode == 0, done.stderr
    assert "WORKLOAD" in done.stdout
    done = kubectl(site, kubeconfig, "gpusteward", "--context", "nowhere", "idle")
    assert (done.returncode, done.stdout) == (2, "")
    assert 'context "nowhere" does not exist' in done.stderr
    assert len(done.stderr.splitlines()) == 1
    done = kubectl(site, kubeconfig, "__complete", "gpusteward", "idle", "--so")
    assert done.stdout.split() == ["--sort", ":4"]
    done = kubectl(site, kubeconfig, "__complete", "gpusteward", "idle", "--context", "")
    assert done.stdout.split() == [kubeconfig.stem, ":4"]


# What the analyzer accepts


def me(site: Site, token: str, header: str = HEADER) -> Any:
    response = site.api.get("/api/v1/me", **{header: f"Bearer {token}"})
    return response.json if response.status == 200 else response.status


def test_the_name_of_the_service_account_is_the_role(site: Site) -> None:
    for role in ("viewer", "operator"):
        token = site.create_token(site.namespace, f"gpusteward-{role}")
        for header in (HEADER, "Authorization"):
            found = me(site, token, header)
            assert (found["role"], found["namespaces"], found["method"]) == (role, None, "service-account")
        assert found["user"] == f"system:serviceaccount:{site.namespace}:gpusteward-{role}"
    assert site.api.post("/analyze", **{HEADER: f"Bearer {token}"}).status == 200


def test_an_account_of_another_namespace_sees_that_namespace(site: Site) -> None:
    other = site.cluster.add_namespace("tenant")
    site.add_viewer_account(other)
    found = me(site, site.create_token(other, "gpusteward-viewer"))
    assert (found["role"], [name.rpartition("/")[2] for name in found["namespaces"]]) == ("viewer", [other])


def test_other_tokens_are_refused(site: Site) -> None:
    other = site.cluster.add_namespace("tenant")
    for name in ("gpusteward-operator", "gpusteward-viewer"):
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": other}}
        site.cluster.apply(account)
    good = site.create_token(site.namespace, "gpusteward-viewer")
    head, claims, signature = good.split(".")
    refused = [
        site.create_token(other, "gpusteward-operator"),
        site.create_token(site.namespace, "default"),
        site.create_token(site.namespace, "gpusteward-viewer", audience="https://kubernetes.default.svc"),
        site.create_token(site.namespace, "gpusteward-viewer", seconds=7200),
        f"{head}.{site.create_token(site.namespace, 'gpusteward-operator').split('.')[1]}.{signature}",
        f"{head}.{claims}.",
        "a.b.c",
    ]
    assert [me(site, token) for token in refused] == [401] * len(refused)
    assert site.api.get("/api/v1/me", token=good, **{HEADER: f"Bearer {good}"}).status == 401
