"""No client takes the requests and event streams of all others."""

import http.client
from contextlib import ExitStack

from pydantic import SecretStr

from gpusteward.analyzer.api.http.concurrency_limits import EVENTS_PATH, SHARES
from gpusteward.analyzer.settings.settings import ServerSettings, Settings
from tests.analyzer.api.sample_results import small_result
from tests.analyzer.api.server import Api, running_api

VIEWER, OTHER, ADMIN = "viewer-0123456789abcdef", "other-0123456789abcdef", "admin-0123456789abcdef"
TOKENS = SecretStr(f"viewer: {VIEWER}\nviewer: {OTHER}\nadmin: {ADMIN}\n")
SHARE = SHARES[EVENTS_PATH].of_one_client


def listen(api: Api, token: str, stack: ExitStack, *, source: str = "127.0.0.1") -> int:
    """The status of an event stream that stays open."""
    port = int(api.url.rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10, source_address=(source, 0))
    stack.callback(connection.close)
    connection.request("GET", EVENTS_PATH, headers={"Authorization": f"Bearer {token}"})
    return connection.getresponse().status


def test_one_viewer_does_not_take_the_event_streams_of_others():
    settings = Settings(server=ServerSettings(tokens=TOKENS))
    with running_api(small_result(), settings=settings, host="127.0.0.1") as api, ExitStack() as stack:
        found = [listen(api, VIEWER, stack) for _ in range(SHARE + 4)]
        assert found == [200] * SHARE + [503] * 4
        assert listen(api, OTHER, stack) == 200  # another token behind the same proxy
        assert listen(api, ADMIN, stack) == 200
        assert listen(api, VIEWER, stack, source="127.0.0.2") == 200  # a colleague with the same token
        assert api.get("/api/v1/workloads", token=VIEWER).status == 200  # counted by itself
        assert api.get("/metrics", token=VIEWER).status == 200


def test_one_token_does_not_take_the_event_streams_of_others_from_many_addresses():
    settings = Settings(server=ServerSettings(tokens=TOKENS))
    half = SHARES[EVENTS_PATH].of_all // 2
    with running_api(small_result(), settings=settings, host="127.0.0.1") as api, ExitStack() as stack:
        sources = [f"127.0.0.{2 + number // SHARE}" for number in range(half + 4)]
        assert [listen(api, VIEWER, stack, source=one) for one in sources] == [200] * half + [503] * 4
        assert listen(api, OTHER, stack) == 200
        assert listen(api, ADMIN, stack) == 200


def test_a_share_is_free_again_when_the_response_has_ended():
    with running_api(small_result()) as api:
        for _ in range(SHARES["others"].of_one_client + 5):
            assert api.get("/api/v1/workloads").status == 200
            assert api.get("/api/v1/nowhere").status == 404


def test_a_large_body_arrives_whole():
    with running_api(small_result()) as api:
        document = api.get("/openapi.json")
        assert len(document.body) > 128 * 1024
        assert document.json["info"]["title"] == "gpusteward"
        assert int(document.headers["Content-Length"]) == len(document.body)
