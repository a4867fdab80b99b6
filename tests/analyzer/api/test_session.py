"""Sessions of browsers: what the cookie is, what it may do, and how it ends. What is forbidden comes first."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpusteward.analyzer.api.http.identities import Sessions, SignInLimit
from gpusteward.analyzer.settings.settings import Settings
from gpusteward.logs import TextFormatter
from tests.analyzer.api.sample_results import small_result
from tests.analyzer.api.server import Api, FakeSettings, Response, running_api

VIEWER, OPERATOR = "viewer-" + "v" * 20, "operator-" + "o" * 20
SESSION = "/api/v1/session"


def settings(reads: str = "never", **server: Any) -> Settings:
    tokens = f"viewer: {VIEWER}\noperator: {OPERATOR}\n"
    return Settings.model_validate({"server": {"anonymous_reads": reads, "tokens": tokens, **server}})


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with running_api(small_result(), settings=settings()) as running:
        yield running


def sign_in(api: Api, token: str = OPERATOR, **headers: str) -> Response:
    return api.post(SESSION, body={"token": token}, **headers)


def cookie_of(response: Response) -> str:
    return response.headers["set-cookie"].partition(";")[0]


def test_never_writes_in_a_session_without_its_csrf_token(api: Api):
    first, second = sign_in(api), sign_in(api)
    cookie = cookie_of(first)
    for csrf in ({}, {"X-Gpusteward-CSRF": ""}, {"X-Gpusteward-CSRF": second.json["csrf"]}):
        response = api.post("/analyze", Cookie=cookie, **csrf)
        assert (response.status, response.json["type"]) == (403, "urn:gpusteward:problem:csrf")
    assert api.cycles.requested == []
    assert api.post("/analyze", Cookie=cookie, X_Gpusteward_CSRF=first.json["csrf"]).status == 200
    api.cycles.requested.clear()


def test_never_writes_for_a_page_of_another_site(api: Api):
    opened = sign_in(api)
    foreign = "https://elsewhere.example"
    for origin in ({"Origin": foreign}, {"Sec-Fetch-Site": "cross-site"}, {"Referer": f"{foreign}/"}):
        headers = {"Cookie": cookie_of(opened), "X-Gpusteward-CSRF": opened.json["csrf"], **origin}
        assert api.post("/analyze", **headers).json["type"] == "urn:gpusteward:problem:cross-site"
        assert sign_in(api, **origin).status == 403
    assert api.cycles.requested == []


def test_never_accepts_an_unknown_token_or_cookie(api: Api):
    refused = sign_in(api, "x" * 30)
    assert (refused.status, "set-cookie" in refused.headers) == (401, False)
    for cookie in ("gpusteward_session=", f"gpusteward_session={'x' * 43}", "gpusteward_session=é"):
        assert api.get("/results", Cookie=cookie).status == 401


def test_never_gives_a_session_more_than_the_role_of_its_token(api: Api):
    opened = sign_in(api, VIEWER)
    headers = {"Cookie": cookie_of(opened), "X-Gpusteward-CSRF": opened.json["csrf"]}
    assert api.get("/results", **headers).status == 200
    assert api.post("/analyze", **headers).json["type"] == "urn:gpusteward:problem:forbidden"
    assert (opened.json["may_read"], opened.json["may_operate"]) == (True, False)


def test_scripts_cannot_read_the_cookie_and_other_sites_cannot_send_it(api: Api):
    attributes = sign_in(api).headers["set-cookie"].split("; ")
    assert attributes[1:] == ["Max-Age=43200", "HttpOnly", "SameSite=Strict"]
    assert re.fullmatch(r"gpusteward_session=[\w-]{43}", attributes[0])


def test_the_cookie_has_no_path_so_that_any_prefix_of_a_proxy_is_part_of_it(api: Api):
    """RFC 6265 5.1.4: its path is the directory of the address that the browser asked, .../api/v1."""
    for response in (sign_in(api), api.get(SESSION, method="DELETE")):
        assert "path" not in response.headers["set-cookie"].lower()


def test_the_cookie_is_for_tls_only_behind_a_proxy_with_tls(api: Api):
    assert sign_in(api, X_Forwarded_Proto="https").headers["set-cookie"].endswith("; Secure")


def test_a_session_ends_by_signing_out_with_the_csrf_token(api: Api):
    opened = sign_in(api)
    cookie = cookie_of(opened)
    assert api.get(SESSION, method="DELETE", Cookie=cookie).status == 403
    ended = api.get(SESSION, method="DELETE", Cookie=cookie, X_Gpusteward_CSRF=opened.json["csrf"])
    assert (ended.status, ended.json["signed_in"]) == (200, False)
    assert ended.headers["set-cookie"].startswith("gpusteward_session=; Max-Age=0;")
    assert api.get("/results", Cookie=cookie).status == 401


def test_signing_in_again_ends_the_session_before(api: Api):
    first = cookie_of(sign_in(api))
    assert sign_in(api, Cookie=first).status == 200
    assert api.get("/results", Cookie=first).status == 401


def test_a_token_that_is_removed_from_its_file_ends_its_sessions(tmp_path: Path):
    file = tmp_path / "tokens"
    file.write_text(f"viewer: {VIEWER}\noperator: {OPERATOR}\n")
    control = FakeSettings(Settings.model_validate({"server": {"anonymous_reads": "never", "tokens_file": file}}))
    with running_api(small_result(), settings=control) as api:
        viewer, operator = (cookie_of(sign_in(api, token)) for token in (VIEWER, OPERATOR))
        file.write_text(f"viewer: {VIEWER}\n# no operator\n")
        control.roles.reload()
        assert api.get("/results", Cookie=viewer).status == 200
        assert api.get("/results", Cookie=operator).status == 401
        assert len(api.dependencies.sessions) == 1


def test_a_session_expires():
    now = [1000.0]
    sessions = Sessions(clock=lambda: now[0])
    value, session = sessions.open("token", seconds=60)
    now[0] += 59
    assert sessions.find(value) is session
    now[0] += 1
    assert sessions.find(value) is None
    assert len(sessions) == 0


def test_the_number_of_sessions_is_limited_and_the_least_used_one_ends():
    sessions = Sessions(most=2)
    first, second = (sessions.open(name, seconds=60).value for name in "ab")
    sessions.find(first)
    sessions.open("c", seconds=60)
    assert (sessions.find(first) is not None, sessions.find(second)) == (True, None)


def test_whoever_signs_in_often_ends_no_session_of_others():
    sessions = Sessions(most=10)
    admin = sessions.open("a", seconds=60, owner="admin").value
    viewers = [sessions.open("v", seconds=60, owner="viewer").value for _ in range(30)]
    assert sessions.find(admin) is not None
    assert len(sessions) == 10
    assert sessions.find(viewers[-1]) is not None
    assert sessions.find(viewers[0]) is None


def test_a_session_lasts_twelve_hours():
    with running_api(small_result(), settings=settings()) as api:
        assert "Max-Age=43200;" in sign_in(api).headers["set-cookie"]


def test_failed_sign_ins_are_limited_by_address():
    with running_api(small_result(), settings=settings()) as api:
        statuses = [sign_in(api, "x" * 30).status for _ in range(11)]
        assert statuses == [401] * 10 + [429]
        assert sign_in(api).status == 429
        assert api.get("/results", token=OPERATOR).status == 200


def test_a_failed_sign_in_is_forgotten_after_a_minute():
    now = [0.0]
    limit = SignInLimit(clock=lambda: now[0], most=2)
    limit.add_failure("a")
    limit.add_failure("a")
    assert (limit.is_exceeded("a"), limit.is_exceeded("b")) == (True, False)
    now[0] = 61
    assert not limit.is_exceeded("a")


def test_a_client_that_may_not_read_learns_only_that(api: Api):
    state = api.get(SESSION).json
    assert (state["may_read"], state["signed_in"], state["role"]) == (False, False, None)
    assert state["reason"]
    assert [state[name] for name in ("version", "currency", "features", "csrf")] == [None, None, None, ""]


def test_a_session_says_who_it_is_and_what_is_in_use(api: Api):
    opened = sign_in(api)
    state = api.get(SESSION, Cookie=cookie_of(opened)).json
    assert state == opened.json
    assert (state["role"], state["method"], state["may_operate"]) == ("operator", "token", True)
    assert not state["may_administer"]
    assert state["features"] == {"ledger": True, "ai": False, "notify": False, "reclaim": False}


def test_without_tokens_a_local_client_may_do_everything():
    with running_api(small_result()) as api:
        state = api.get(SESSION).json
        assert (state["may_read"], state["may_operate"], state["method"]) == (True, True, "anonymous")
        assert (state["may_administer"], state["features"]["reclaim"]) == (True, False)


def test_the_identity_of_a_proxy_needs_no_session():
    proxy = {"proxy": {"addresses": ["127.0.0.1"]}, "rules": [{"users": ["ada"], "role": "operator"}]}
    with running_api(small_result(), settings=Settings.model_validate({"auth": proxy})) as api:
        state = api.get(SESSION, X_Forwarded_User="ada").json
        assert (state["user"], state["may_operate"], state["signed_in"]) == ("ada", True, False)
        nobody = api.get(SESSION, X_Forwarded_User="eve").json
        assert (nobody["may_read"], "auth.rules" in nobody["reason"]) == (False, True)


def test_a_body_that_is_too_large_is_refused_also_without_a_length(api: Api):
    import http.client
    from urllib.parse import urlsplit

    connection = http.client.HTTPConnection(urlsplit(api.url).netloc, timeout=20)
    connection.request(
        "POST",
        SESSION,
        body=iter([b'{"token": "', *[b"x" * 8192] * 16, b'"}']),
        headers={"Content-Type": "application/json"},
        encode_chunked=True,
    )
    assert connection.getresponse().status == 413
    connection.close()


def test_no_token_is_logged_or_repeated(api: Api, caplog: pytest.LogCaptureFixture):
    secret = "very-secret-token-" + "z" * 20
    with caplog.at_level(logging.DEBUG):
        bodies = [sign_in(api, secret).body, api.post(SESSION, body={"token": secret, "more": 1}).body]
        bodies += [api.post(SESSION, body={"token": [secret]}).body, sign_in(api).body]
    assert all(secret.encode() not in body and OPERATOR.encode() not in body for body in bodies)
    logged = [TextFormatter().format(record) for record in caplog.records]
    assert any("signed_in" in line for line in logged)
    assert not any(secret in line or OPERATOR in line for line in logged)
