"""Which requests are local: by the address of the peer, unless a header revokes it."""

import pytest
from starlette.datastructures import Headers

from gpusteward.http_server.local_clients import is_local_request

HOST = {"host": "localhost:8080"}


def is_local(client: str = "127.0.0.1", **headers: str) -> bool:
    return is_local_request(client, Headers({**HOST, **{key.replace("_", "-"): text for key, text in headers.items()}}))


@pytest.mark.parametrize("client", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "::1%lo"])
def test_the_two_loopback_addresses_are_local(client: str):
    assert is_local(client)


@pytest.mark.parametrize("client", ["127.0.0.6", "127.0.0.2", "127.8.8.8", "::ffff:127.0.0.6", "10.0.0.1", "::2", ""])
def test_no_other_address_is_local(client: str):
    assert not is_local(client)


@pytest.mark.parametrize(
    "name",
    [
        *("Forwarded", "Via", "X-Real-IP", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Client-Cert"),
        *("X-Envoy-External-Address", "X-Envoy-Peer-Metadata", "l5d-client-id", "X-Original-Forwarded-For"),
    ],
)
def test_a_forwarded_request_is_not_local(name: str):
    assert not is_local(**{name: "x"})
    assert not is_local(**{name: ""})


@pytest.mark.parametrize("host", ["rebound.example", "rebound.example:8080", "localhost.example", "[", ""])
def test_a_request_for_another_host_name_is_not_local(host: str):
    assert not is_local(host=host)


@pytest.mark.parametrize("host", ["localhost", "top.localhost:9400", "127.0.0.1:9400", "[::1]:9400"])
def test_names_of_this_machine_are_local(host: str):
    assert is_local(host=host)


def test_a_request_of_a_foreign_page_is_not_local():
    assert is_local(origin="http://localhost:8080", sec_fetch_site="same-origin")
    assert not is_local(origin="https://evil.example")
    assert not is_local(origin="http://localhost:9999")
    assert not is_local(origin="null")
    assert is_local(referer="http://localhost:8080/ui/")
    assert not is_local(referer="https://evil.example/http://localhost:8080/")
    assert not is_local(sec_fetch_site="cross-site")
    assert not is_local(sec_fetch_site="same-site")


def test_a_client_without_a_host_header_is_no_browser():
    assert is_local_request("127.0.0.1", Headers({}))
    assert not is_local_request("10.0.0.1", Headers({}))
