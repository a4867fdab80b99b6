"""The client of the API server on a real one: credentials, rights, objects, watches."""

import logging
import threading

import msgspec
import pytest
import trustme

from gpusteward.core.errors import SourceError
from gpusteward.kubernetes.api import ObjectError, TooLargeError
from tests.kubernetes.cluster import Account, Cluster, pod, wait_for

pytestmark = pytest.mark.slow

RULES = [{"apiGroups": [""], "resources": ["pods", "configmaps"], "verbs": ["get", "list", "watch"]}]


class Named(msgspec.Struct):
    name: str


class Item(msgspec.Struct):
    metadata: Named


class Listing(msgspec.Struct):
    items: list[Item]


@pytest.fixture(scope="module")
def namespace(kubernetes: Cluster) -> str:
    return kubernetes.add_namespace()


@pytest.fixture
def account(kubernetes: Cluster, namespace: str) -> Account:
    return kubernetes.add_account(namespace, RULES)


def pods_of(namespace: str, query: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/pods?{query}"


def test_a_response_is_decoded_to_the_requested_type(kubernetes: Cluster, namespace: str, account: Account) -> None:
    kubernetes.apply(pod("trainer", namespace))
    found = kubernetes.connect(account).read_json(pods_of(namespace), Listing)
    assert [item.metadata.name for item in found.items] == ["trainer"]


def test_a_response_over_the_limit_has_its_own_error(kubernetes: Cluster, namespace: str, account: Account) -> None:
    with pytest.raises(TooLargeError, match="larger than 20 bytes"):
        kubernetes.connect(account).read_json(pods_of(namespace), Listing, limit_bytes=20)


def test_the_texts_of_a_config_map_can_be_read(kubernetes: Cluster, namespace: str, account: Account) -> None:
    about = {"name": "fields", "namespace": namespace}
    kubernetes.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {"metrics": "A, gauge, a"}})
    api = kubernetes.connect(account)
    assert api.read_config_map(namespace, "fields") == {"metrics": "A, gauge, a"}
    with pytest.raises(ObjectError, match=r'configmaps "absent" not found'):
        api.read_config_map(namespace, "absent")


def test_a_rotated_token_is_used_from_the_next_request_on(
    kubernetes: Cluster, namespace: str, account: Account
) -> None:
    api = kubernetes.connect(account)
    api.read_json(pods_of(namespace), Listing)
    other = kubernetes.add_account(namespace, RULES)
    (account.folder / "token").write_bytes((other.folder / "token").read_bytes())
    api.read_json(pods_of(namespace), Listing)
    assert len(kubernetes.read_audit(account.user)) == len(kubernetes.read_audit(other.user)) == 1


def test_the_token_reaches_neither_errors_nor_the_log(
    kubernetes: Cluster, namespace: str, account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    (account.folder / "token").write_text("eyJhbGciOi.not-of-this-cluster")
    with pytest.raises(SourceError, match=r"does not accept the service account token \(401\)") as caught:
        kubernetes.connect(account).read_json(pods_of(namespace), Listing)
    assert "eyJhbGciOi" not in str(caught.value) + caplog.text


def test_a_certificate_of_an_unknown_authority_is_refused(
    kubernetes: Cluster, namespace: str, account: Account
) -> None:
    trustme.CA().cert_pem.write_to_path(str(account.folder / "ca.crt"))
    with pytest.raises(SourceError, match=r"https://127.*: TLS failed: .*ca\.crt"):
        kubernetes.connect(account).read_json(pods_of(namespace), Listing)


def test_an_unusable_authority_file_is_named(kubernetes: Cluster, namespace: str, account: Account) -> None:
    (account.folder / "ca.crt").write_text("not a certificate")
    with pytest.raises(SourceError, match=r"cannot use the CA file .*ca\.crt"):
        kubernetes.connect(account).read_json(pods_of(namespace), Listing)


def test_a_403_names_the_missing_rbac_rule(kubernetes: Cluster, namespace: str) -> None:
    api = kubernetes.connect(kubernetes.add_account(namespace, []))
    with pytest.raises(ObjectError, match=r'resources \["pods"\], verbs \["list", "watch"\]') as caught:
        api.read_json("/api/v1/pods", Listing)
    assert caught.value.http_status == 403
    with pytest.raises(ObjectError, match=r'resources \["pods"\], verbs \["get", "list"\]'):
        api.read_json(pods_of(namespace), Listing)
    with pytest.raises(SourceError, match=r'Role in that namespace with resources \["configmaps"\], verbs \["get"\]'):
        api.read_config_map(namespace, "fields")


def test_a_watch_yields_whole_lines(kubernetes: Cluster, namespace: str, account: Account) -> None:
    kubernetes.apply(pod("watched", namespace))
    path = pods_of(namespace, "watch=true&fieldSelector=metadata.name%3Dwatched")
    with kubernetes.connect(account).watch(path, idle_timeout_seconds=20) as stream:
        event = msgspec.json.decode(next(iter(stream)))
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "watched")


def test_a_blocked_read_can_be_interrupted_from_another_thread(
    kubernetes: Cluster, namespace: str, account: Account
) -> None:
    path = pods_of(namespace, "watch=true&fieldSelector=metadata.name%3Dabsent")
    with kubernetes.connect(account).watch(path, idle_timeout_seconds=60) as stream:
        wait_for(lambda: bool(kubernetes.read_audit(account.user)))
        threading.Timer(0.05, stream.interrupt).start()
        with pytest.raises(SourceError, match="the watch ended"):
            next(iter(stream))
        stream.interrupt()
