"""Request heads that are expensive to parse. Whoever reaches the port can send them."""

import pytest

from tests.attacks.victims import Victim, status_of

pytestmark = pytest.mark.slow

LANGUAGES = "Accept-Language: " + ",".join(f"a{number}" for number in range(4000))
ESCAPES = 'Cookie: a="' + "\\" * 28_000 + '"'


@pytest.mark.parametrize("path", ["/nowhere", "/health", "/api/v1/health"])
def test_a_long_list_of_languages(analyzer: Victim, path: str):
    with analyzer.attacked(cpu_seconds=0.5):
        assert status_of(analyzer.get(path, LANGUAGES)) == 431


@pytest.mark.parametrize("path", ["/livez", "/api/v1/session"])
def test_quoted_cookies_of_others_are_not_parsed(analyzer: Victim, path: str):
    with analyzer.attacked(cpu_seconds=0.5):
        assert status_of(analyzer.get(path, ESCAPES)) == 200  # 28 kB, as a sign-in proxy's may be


@pytest.mark.parametrize(("digits", "status"), [(6000, 431), (900, 413)])
def test_a_length_of_many_digits(analyzer: Victim, digits: int, status: int):
    head = b"POST /analyze HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: "
    assert status_of(analyzer.send(head + b"0" * digits + b"\r\n\r\n")) == status


def test_a_head_above_the_limit(analyzer: Victim, agent: Victim):
    with analyzer.attacked(cpu_seconds=0.5):
        for value in ("x" * 32_768, "x" * 250_000):
            assert status_of(analyzer.get("/livez", f"X-A: {value}")) in (0, 431)
    with agent.attacked(cpu_seconds=0.5):
        for value in ("x" * 16_384, "x" * 250_000):
            assert status_of(agent.get("/livez", f"X-A: {value}")) in (0, 431)


def test_many_headers(analyzer: Victim, agent: Victim):
    many = [f"X-{number}: 1" for number in range(1000)]
    assert status_of(analyzer.get("/livez", *many)) == 431
    assert status_of(agent.get("/livez", *many)) == 431


@pytest.mark.parametrize("name", ["Accept", "Accept-Encoding", "Host", "Origin", "Referer"])
def test_headers_that_are_interpreted(analyzer: Victim, agent: Victim, name: str):
    assert status_of(analyzer.get("/livez", f"{name}: {'a,' * 600}")) == 431
    assert status_of(agent.get("/livez", f"{name}: {'a,' * 600}")) == 431


def test_credentials_have_room_for_groups(analyzer: Victim, agent: Victim):
    for victim in (analyzer, agent):
        assert status_of(victim.get("/metrics", f"Authorization: Bearer {'a' * 7000}")) in (200, 401)
        assert status_of(victim.get("/metrics", f"Authorization: Bearer {'a' * 8200}")) == 431
