"""/api/v1/deliveries on a real outbox: dead deliveries are shown without secrets and can be retried by operators."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import SecretStr

from gpusteward.analyzer.api.http.concurrency_limits import CONCURRENT_REQUESTS
from gpusteward.analyzer.notify.notifier import Notifier
from gpusteward.analyzer.settings.settings import ServerSettings, Settings
from gpusteward.core.errors import SourceError
from tests.analyzer.api.server import Api, FakeDeliveries, running_api
from tests.analyzer.notify.notifier_setup import gpu_of, open_ledger, result_of, running_notifier, settings_of
from tests.fakes.receivers import Receiver
from tests.waiting import wait_until

PATH = "/api/v1/deliveries"
VIEWER, OPERATOR = "viewer-token-0123456789", "operator-token-0123456789"


@dataclass
class DeadDelivery:
    """A notifier whose receiver refused a delivery, and the API."""

    receiver: Receiver
    notifier: Notifier
    api: Api


@pytest.fixture
def dead(tmp_path: Path) -> Iterator[DeadDelivery]:
    engine = open_ledger(tmp_path)
    with Receiver() as receiver:
        receiver.fault = "400"
        url = f"{receiver.url}/s3cret-path?token=s3cret".replace("://", "://user:s3cret@")
        settings = settings_of(control={"enabled": True, "api_url": url})
        with running_notifier(settings, engine) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            wait_until(lambda: notifier.counters.dead["control"] == 1)
            with running_api(settings=guarded(), deliveries=notifier) as api:
                wait_until(lambda: bool(api.get(f"{PATH}?state=dead").json["items"]))
                yield DeadDelivery(receiver, notifier, api)
    engine.dispose()


def guarded() -> Settings:
    tokens = SecretStr(f"viewer: {VIEWER}\noperator: {OPERATOR}")
    return Settings(server=ServerSettings(tokens=tokens))


def test_a_dead_delivery_is_shown_without_its_content_and_address(dead: DeadDelivery):
    response = dead.api.get(f"{PATH}?state=dead")
    (row,) = response.json["items"]
    assert (row["kind"], row["target"], row["state"], row["attempts"]) == ("control", "control", "dead", 5)
    assert row["stream"] == "control/Deployment/ml/web"
    assert row["host"] == dead.receiver.url.removeprefix("http://")
    assert row["error"] == "HTTP 400"
    assert row["created_at"].endswith("Z")
    assert b"s3cret" not in response.body
    assert b"gpu_id" not in response.body
    assert response.headers["cache-control"] == "no-store"
    assert dead.api.get(f"{PATH}?state=pending").json == {"items": []}


def test_an_operator_can_retry_it_and_it_is_delivered(dead: DeadDelivery):
    number = dead.api.get(PATH).json["items"][0]["id"]
    dead.receiver.fault = ""
    response = dead.api.post(f"{PATH}/{number}/retry", token=OPERATOR)
    assert (response.status, response.json["state"], response.json["attempts"]) == (200, "pending", 0)
    dead.receiver.wait_for(lambda it: len(it.accepted) == 1)
    wait_until(lambda: dead.api.get(PATH).json["items"][0]["state"] == "done")
    again = dead.api.post(f"{PATH}/{number}/retry", token=OPERATOR)
    assert (again.status, again.json["type"]) == (409, "urn:gpusteward:problem:not-dead")


@pytest.mark.parametrize(("token", "status"), [("", 401), (VIEWER, 403), ("unknown-token-00000000", 401)])
def test_no_other_role_can_retry_it(dead: DeadDelivery, token: str, status: int):
    assert dead.api.post(f"{PATH}/1/retry", token=token).status == status
    assert dead.notifier.read_deliveries("dead", 10)


def test_a_delivery_that_does_not_exist_cannot_be_retried(dead: DeadDelivery):
    assert dead.api.post(f"{PATH}/999999/retry", token=OPERATOR).status == 404
    assert dead.api.post(f"{PATH}/0/retry", token=OPERATOR).status == 422
    assert dead.api.get(f"{PATH}?state=lost").status == 422
    assert dead.api.get(f"{PATH}?limit=100000").status == 422


def test_remote_requests_need_a_token_to_read():
    with running_api(settings=guarded()) as api:
        assert api.get(PATH, X_Forwarded_For="10.0.0.1").status == 401
        assert api.get(PATH, token=VIEWER, X_Forwarded_For="10.0.0.1").status == 200


def test_without_a_target_there_are_no_deliveries(tmp_path: Path):
    with running_notifier(settings_of()) as notifier:
        assert notifier.read_deliveries(None, 10) == []
        assert notifier.retry_delivery(1) == (None, False)


def test_an_unreachable_database_has_its_own_problem_type():
    with running_api(deliveries=FakeDeliveries(failure="the outbox cannot be read: it is away")) as api:
        for _ in range(CONCURRENT_REQUESTS + 1):  # each request ends and frees its slot
            response = api.get(PATH)
            assert (response.status, response.json["type"]) == (503, "urn:gpusteward:problem:ledger-failed")


def test_a_missing_table_is_a_source_error(tmp_path: Path):
    engine = open_ledger(tmp_path)
    with Receiver() as receiver:
        settings = settings_of(control={"enabled": True, "api_url": receiver.url})
        with running_notifier(settings, engine) as notifier:
            with engine.begin() as connection:
                connection.exec_driver_sql("DROP TABLE outbox")
            with pytest.raises(SourceError, match="the outbox cannot be read"):
                notifier.read_deliveries(None, 10)
    engine.dispose()
