"""Numbers that a client may set or ask for."""

import pytest

from tests.attacks.victims import Victim, status_of

pytestmark = pytest.mark.slow


def test_an_interval_that_would_stop_the_cycles(analyzer: Victim):
    response = analyzer.post("/config/update?interval=99999999999", b"")
    assert status_of(response) == 200  # as gpu-oour answers
    assert b"86400 at most" in response
    assert b'"interval":300' in analyzer.get("/health")


PATHS = (
    "/config/update?threshold={}",
    "/config/update?interval={}",
    "/api/v1/overview?days={}",
    "/api/v1/workloads?limit={}",
    "/api/v1/replay?regret_minutes={}",
    "/api/v1/reports?top={}",
    "/api/v1/reports?since={}d",
    "/api/v1/replay?since={}d",
    "/api/v1/replay?since={}w",
)
NUMBERS = ("9" * 12, "9" * 39, "9" * 400, "9" * 20_000, "1e999", "nan", "-1")


def send_number(victim: Victim, path: str, number: str) -> bytes:
    target = path.format(number)
    return victim.post(target, b"") if path.startswith("/config") else victim.get(target)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("number", NUMBERS)
def test_no_number_is_an_internal_error(analyzer: Victim, path: str, number: str):
    with analyzer.attacked(cpu_seconds=0.5):
        response = send_number(analyzer, path, number)
    assert status_of(response) in (200, 404, 422, 503), response
    assert status_of(response) != 200 or b'"error"' in response or "replay" in path, response
