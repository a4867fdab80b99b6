"""Requests that a page of another site makes a browser send: no token is configured, and the browser is local."""

import pytest

from tests.attacks.victims import Victim, status_of

pytestmark = pytest.mark.slow

FOREIGN = "https://evil.example"


@pytest.mark.parametrize("header", [f"Referer: {FOREIGN}/page", f"Origin: {FOREIGN}", "Sec-Fetch-Site: cross-site"])
@pytest.mark.parametrize("path", ["/analyze", "/config/update?threshold=1"])
def test_a_foreign_page_writes_nothing(analyzer: Victim, header: str, path: str):
    if path == "/analyze":
        assert status_of(analyzer.get(path, header)) == 401
    assert status_of(analyzer.post(path, b"", header)) == 401
    assert status_of(analyzer.post("/analyze", b"")) == 200  # without a page


def test_a_foreign_page_reads_no_snapshot(agent: Victim):
    assert status_of(agent.get("/snapshot", f"Referer: {FOREIGN}/page")) == 403
    assert status_of(agent.get("/snapshot", f"Referer: {agent.url}/")) == 403  # another name than that of Host
    assert status_of(agent.get("/snapshot")) == 200
