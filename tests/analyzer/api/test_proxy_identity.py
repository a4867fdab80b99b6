"""The identity header of a reverse proxy: what is refused comes first."""

import http.client
import logging
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from starlette.datastructures import Headers

from gpusteward.analyzer.api.http.identities import Person, Refusals, apply_rules, is_proxy, read_proxy_headers
from gpusteward.analyzer.settings.auth import AuthRule, ProxySettings
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.http.credentials import basic_authorization
from gpusteward.http_server.web_config import WebConfigFile
from tests.analyzer.api.sample_results import small_result
from tests.analyzer.api.server import Api, running_api

TOKEN = "operator-" + "o" * 20
RULES: list[dict[str, Any]] = [
    {"users": ["lead@example.com"], "role": "viewer", "namespaces": ["vision"]},
    {"groups": ["gpu operators"], "role": "operator"},
    {"groups": ["platform"], "role": "admin"},
]


def make_settings(addresses: Sequence[str] = ("127.0.0.1",), *, reads: str = "loopback", **proxy: str) -> Settings:
    auth = {"proxy": {"addresses": list(addresses), **proxy}, "rules": RULES}
    server = {"anonymous_reads": reads, "tokens": f"operator: {TOKEN}"}
    return Settings.model_validate({"server": server, "auth": auth})


@pytest.fixture(scope="module")
def behind_proxy() -> Iterator[Api]:
    """The proxy is the address that the test sends from."""
    with running_api(small_result(), settings=make_settings()) as running:
        yield running


@pytest.fixture(scope="module")
def beside_proxy() -> Iterator[Api]:
    """The proxy has another address."""
    with running_api(small_result(), settings=make_settings(["10.9.0.0/16"], reads="loopback")) as running:
        yield running


def send(
    api: Api, *headers: tuple[str, bytes | str], method: str = "GET", path: str = "/api/v1/me"
) -> tuple[int, bytes]:
    """With these header lines exactly."""
    connection = http.client.HTTPConnection(api.url.removeprefix("http://"), timeout=10)
    connection.putrequest(method, path)
    for name, value in headers:
        connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, body


def test_never_believes_the_header_of_another_address(beside_proxy: Api):
    for name in ("X-Forwarded-User", "X-Forwarded-Groups"):
        response = beside_proxy.get("/api/v1/me", **{name: "platform"})
        assert (response.status, response.json["type"]) == (403, "urn:gpusteward:problem:not-a-proxy")
    assert beside_proxy.get("/api/v1/me", X_Forwarded_User="root", X_Forwarded_For="10.9.0.1").status == 403
    assert beside_proxy.get("/api/v1/me", token=TOKEN, X_Forwarded_User="root").status == 403
    assert beside_proxy.get("/api/v1/me").json["method"] == "anonymous"
    assert beside_proxy.dependencies.refusals.counts["not_a_proxy"] == 4
    assert b'gpusteward_analyzer_refused_requests_total{reason="not_a_proxy"} 4' in beside_proxy.get("/metrics").body


def test_never_believes_a_header_without_configured_proxies():
    with running_api(
        small_result(), settings=Settings.model_validate({"server": {"tokens": f"admin: {TOKEN}"}})
    ) as api:
        assert api.get("/api/v1/me", X_Auth_Request_User="root").json["method"] == "anonymous"
        assert api.get("/api/v1/me", X_Forwarded_User="root").status == 401  # not local


@pytest.mark.parametrize(
    "headers",
    [
        [("X-Forwarded-User", "lead@example.com"), ("X-Forwarded-User", "root")],
        [("X-Forwarded-User", "lead@example.com"), ("x-forwarded-user", "lead@example.com")],
        [("X-Forwarded-User", "a"), ("X-Forwarded-Groups", "none"), ("X-Forwarded-Groups", "platform")],
        [("X-Forwarded-User", "a" * 257), ("X-Forwarded-Groups", "platform")],
        [("X-Forwarded-User", b"a\xff"), ("X-Forwarded-Groups", "platform")],
        [("X-Forwarded-User", "a\tb"), ("X-Forwarded-Groups", "platform")],
        [("X-Forwarded-User", "a\u202eb".encode()), ("X-Forwarded-Groups", "platform")],
        [("X-Forwarded-User", "a"), ("X-Forwarded-Groups", "platform,x\ty")],
        [("X-Forwarded-User", "a"), ("X-Forwarded-Groups", ",".join(["platform"] * 1001))],
        [("Authorization", f"Bearer {TOKEN}"), ("Authorization", f"Bearer {TOKEN}")],
    ],
)
def test_never_believes_headers_that_can_be_read_in_two_ways(behind_proxy: Api, headers: list[tuple[str, str | bytes]]):
    status, body = send(behind_proxy, *headers)
    assert status == 401
    assert b"platform" not in body


@pytest.mark.parametrize("value", [b"a\r\n X-Forwarded-Groups: platform", b"a\x00b", b"a\x7fb"])
def test_never_believes_a_name_with_control_characters(behind_proxy: Api, value: bytes):
    """Sent without the checks of a client; a line end inside a header is refused by the server itself."""
    request = b"GET /api/v1/me HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Forwarded-User: " + value + b"\r\n\r\n"
    host, port = behind_proxy.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(request)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.split()[1] in (b"400", b"401", b"403")
    assert b'"role"' not in answer


def test_a_local_request_through_a_proxy_is_not_local(behind_proxy: Api):
    """Whoever a proxy on this machine lets through without an identity does not get the rights of this machine."""
    assert behind_proxy.get("/results").status == 401
    assert behind_proxy.get("/results", X_Forwarded_User="").status == 401
    assert behind_proxy.get("/health").status == 200


def test_never_serves_somebody_without_a_rule(behind_proxy: Api):
    response = behind_proxy.get("/results", X_Forwarded_User="stranger", X_Forwarded_Groups="gpu, operators")
    assert (response.status, response.json["type"]) == (403, "urn:gpusteward:problem:no-role")
    assert "stranger" not in response.json["detail"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Referer": "https://evil.example/page?a=//127.0.0.1"},
        {"Referer": "about:blank"},
    ],
)
@pytest.mark.parametrize(("method", "path"), [("POST", "/analyze"), ("GET", "/analyze"), ("POST", "/config/update")])
def test_never_writes_for_a_page_of_another_site(behind_proxy: Api, headers: dict[str, str], method: str, path: str):
    """The browser of an operator who is signed in at the proxy."""
    before = list(behind_proxy.cycles.requested)
    response = behind_proxy.get(path, method=method, X_Forwarded_User="op", X_Forwarded_Groups="platform", **headers)
    assert (response.status, behind_proxy.cycles.requested) == (403, before)


def test_writes_from_the_own_page_are_allowed_and_logged(behind_proxy: Api, caplog: pytest.LogCaptureFixture):
    own = {"Origin": "https://gpus.example.com", "X-Forwarded-Host": "gpus.example.com"}
    with caplog.at_level(logging.INFO):
        referer = {"Referer": "https://gpus.example.com/ui/", "X-Forwarded-Host": "gpus.example.com"}
        for headers in (own, referer, {"Sec-Fetch-Site": "same-origin"}, {}):
            assert (
                behind_proxy.post("/analyze", X_Forwarded_User="Ann", X_Forwarded_Groups="platform", **headers).status
                == 200
            )
        assert behind_proxy.post("/config/update?threshold=30", token=TOKEN).status == 200
    writers = [record.facts["by"] for record in caplog.records if "by" in getattr(record, "facts", {})]
    assert [str(each) for each in writers] == ["Ann", "Ann", "Ann", "Ann", "token operator"]


def test_a_signed_in_person_has_the_role_of_the_rules(behind_proxy: Api):
    assert behind_proxy.get("/api/v1/me", X_Forwarded_User="lead@example.com", X_Forwarded_Groups="a, b").json == {
        "user": "lead@example.com",
        "groups": ["a", "b"],
        "role": "viewer",
        "method": "proxy",
        "namespaces": ["vision"],
    }
    admin = behind_proxy.get("/api/v1/me", X_Forwarded_User="lead@example.com", X_Forwarded_Groups="platform").json
    assert (admin["role"], admin["namespaces"]) == ("admin", None)
    assert (
        behind_proxy.get("/api/v1/me", X_Forwarded_User="b", X_Forwarded_Groups="gpu operators").json["role"]
        == "operator"
    )


def test_names_outside_ascii_are_utf8(behind_proxy: Api):
    status, body = send(behind_proxy, ("X-Forwarded-User", "王芳".encode()), ("X-Forwarded-Groups", "platform"))
    assert (status, "王芳" in body.decode()) == (200, True)


def test_a_token_is_used_beside_an_identity(behind_proxy: Api):
    me = behind_proxy.get("/api/v1/me", token=TOKEN, X_Forwarded_User="lead@example.com").json
    assert (me["method"], me["role"], me["namespaces"]) == ("token", "operator", None)


def test_never_chooses_between_a_session_and_another_person_at_the_proxy(behind_proxy: Api):
    opened = behind_proxy.post("/api/v1/session", body={"token": TOKEN})
    cookie = opened.headers["set-cookie"].partition(";")[0]
    writes = {"Cookie": cookie, "X-Gpusteward-CSRF": opened.json["csrf"]}
    assert behind_proxy.get("/api/v1/me", Cookie=cookie).json["role"] == "operator"
    before = list(behind_proxy.cycles.requested)
    for user in ("lead@example.com", "stranger"):
        for response in (
            behind_proxy.get("/api/v1/me", Cookie=cookie, X_Forwarded_User=user),
            behind_proxy.post("/analyze", X_Forwarded_User=user, **writes),
        ):
            assert (response.status, response.json["type"]) == (403, "urn:gpusteward:problem:two-identities")
    assert behind_proxy.cycles.requested == before
    state = behind_proxy.get("/api/v1/session", Cookie=cookie, X_Forwarded_User="lead@example.com").json
    assert (state["may_read"], "sign out" in state["reason"]) == (False, True)
    ended = behind_proxy.get("/api/v1/session", method="DELETE", X_Forwarded_User="lead@example.com", **writes)
    assert ended.status == 200
    assert behind_proxy.get("/api/v1/me", Cookie=cookie, X_Forwarded_User="lead@example.com").json["method"] == "proxy"


@pytest.fixture
def password(tmp_path: Path) -> WebConfigFile:
    users = f"basic_auth_users:\n  proxy: {bcrypt.hashpw(b'secret', bcrypt.gensalt(4)).decode()}\n"
    (tmp_path / "web.yml").write_text(users)
    return WebConfigFile(tmp_path / "web.yml")


def test_the_password_of_a_proxy_is_not_that_of_the_people_behind_it(password: WebConfigFile):
    own = {"Authorization": basic_authorization("proxy", "secret")}
    with running_api(small_result(), settings=make_settings(), web=password.current) as api:
        assert api.get("/api/v1/me", X_Forwarded_User="lead@example.com").status == 401  # not the proxy
        lead = api.get("/api/v1/me", X_Forwarded_User="lead@example.com", **own).json
        assert (lead["method"], lead["namespaces"]) == ("proxy", ["vision"])
        assert api.get("/api/v1/me", **own).status == 401
    with running_api(small_result(), settings=make_settings(["10.9.0.1"]), web=password.current) as api:
        assert api.get("/api/v1/me", **own).json["method"] == "web-config"


def test_headers_and_the_separator_of_groups_can_be_chosen():
    settings = ProxySettings(user_header="X-authentik-username", groups_header="X-Groups", groups_separator="|")
    headers = Headers({"X-authentik-username": "ann", "X-Groups": "a,b|c d"})
    assert read_proxy_headers(headers, settings) == Person("ann", ("a,b", "c d"))


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("10.0.3.7", True),
        ("::ffff:10.0.3.7", True),
        ("10.0.4.7", False),
        ("fd00::7", True),
        ("fd00::8", False),
        ("proxy.example", False),
        ("", False),
    ],
)
def test_the_address_of_the_peer_decides_who_is_a_proxy(peer: str, expected: bool):
    assert is_proxy(peer, ProxySettings(addresses=["10.0.3.0/28", "fd00::7"])) is expected


def rules(*given: dict[str, Any]) -> list[AuthRule]:
    return [AuthRule.model_validate(each) for each in given]


def test_all_matching_rules_count():
    team = {"groups": ["a"], "role": "viewer", "namespaces": ["vision-*"]}
    other = {"users": ["ann"], "role": "viewer", "namespaces": ["chat"], "clusters": ["prod"]}
    found = apply_rules(Person("ann", ("a",)), rules(team, other), method="proxy")
    assert found is not None
    assert found.visible is not None
    assert found.visible.names == ["prod/chat", "vision-*"]
    everybody = {"users": ["*"], "role": "viewer"}
    unlimited = apply_rules(Person("ann", ("a",)), rules(team, everybody), method="proxy")
    assert unlimited is not None
    assert unlimited.visible is None


def test_one_refusal_a_minute_is_logged_and_all_are_counted(caplog: pytest.LogCaptureFixture):
    now = 0.0
    refusals = Refusals(clock=lambda: now)
    for _ in range(1000):
        refusals.add("unknown_token", peer="10.0.0.1")
    now = 61.0
    refusals.add("unknown_token", peer="10.0.0.2")
    assert (refusals.counts["unknown_token"], caplog.text.count("request_refused")) == (1001, 2)
