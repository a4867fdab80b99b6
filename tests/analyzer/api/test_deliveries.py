"""/api/v1/deliveries on a real outbox: what was given up is seen, and tried again by those who may; no secret is."""

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
from tests.fakes.receivers import Receiver, wait_until

PATH = "/api/v1/deliveries"
VIEWER, OPERATOR = "viewer-token-0123456789", "operator-token-0123456789"


@dataclass
class House:
    """Somebody to tell, who refuses, and the API beside it."""

    receiver: Receiver
    notifier: Notifier
    api: Api


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    engine = open_ledger(tmp_path)
    with Receiver() as receiver:
        receiver.misfortune = "400"
        url = f"{receiver.url}/s3cret-path?token=s3cret".replace("://", "://user:s3cret@")
        settings = settings_of(control={"enabled": True, "api_url": url})
        with running_notifier(settings, engine) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            wait_until(lambda: notifier.counters.dead["control"] == 1)
            with running_api(settings=guarded(), deliveries=notifier) as api:
                wait_until(lambda: bool(api.get(f"{PATH}?state=dead").json["items"]))
                yield House(receiver, notifier, api)
    engine.dispose()


def guarded() -> Settings:
    tokens = SecretStr(f"viewer: {VIEWER}\noperator: {OPERATOR}")
    return Settings(server=ServerSettings(tokens=tokens))


def test_what_was_given_up_is_shown_without_what_it_says_or_where_it_goes(house: House):
    answer = house.api.get(f"{PATH}?state=dead")
    (row,) = answer.json["items"]
    assert (row["kind"], row["target"], row["state"], row["attempts"]) == ("control", "control", "dead", 5)
    assert row["stream"] == "control/Deployment/ml/web"
    assert row["host"] == house.receiver.url.removeprefix("http://")
    assert row["error"] == "HTTP 400"
    assert row["created_at"].endswith("Z")
    assert b"s3cret" not in answer.body
    assert b"gpu_id" not in answer.body
    assert answer.headers["cache-control"] == "no-store"
    assert house.api.get(f"{PATH}?state=pending").json == {"items": []}


def test_an_operator_has_it_tried_again_and_it_arrives(house: House):
    number = house.api.get(PATH).json["items"][0]["id"]
    house.receiver.misfortune = ""
    answer = house.api.post(f"{PATH}/{number}/retry", token=OPERATOR)
    assert (answer.status, answer.json["state"], answer.json["attempts"]) == (200, "pending", 0)
    house.receiver.wait_for(lambda it: len(it.accepted) == 1)
    wait_until(lambda: house.api.get(PATH).json["items"][0]["state"] == "done")
    again = house.api.post(f"{PATH}/{number}/retry", token=OPERATOR)
    assert (again.status, again.json["type"]) == (409, "urn:gpusteward:problem:not-dead")


@pytest.mark.parametrize(("token", "status"), [("", 401), (VIEWER, 403), ("nobody-gave-this-out-00", 401)])
def test_nobody_else_may_have_it_tried_again(house: House, token: str, status: int):
    assert house.api.post(f"{PATH}/1/retry", token=token).status == status
    assert house.notifier.read_deliveries("dead", 10)


def test_one_that_is_not_there_cannot_be_tried_again(house: House):
    assert house.api.post(f"{PATH}/999999/retry", token=OPERATOR).status == 404
    assert house.api.post(f"{PATH}/0/retry", token=OPERATOR).status == 422
    assert house.api.get(f"{PATH}?state=lost").status == 422
    assert house.api.get(f"{PATH}?limit=100000").status == 422


def test_from_elsewhere_reading_needs_a_token():
    with running_api(settings=guarded()) as api:
        assert api.get(PATH, X_Forwarded_For="10.0.0.1").status == 401
        assert api.get(PATH, token=VIEWER, X_Forwarded_For="10.0.0.1").status == 200


def test_where_nobody_is_told_there_are_none(tmp_path: Path):
    with running_notifier(settings_of()) as notifier:
        assert notifier.read_deliveries(None, 10) == []
        assert notifier.retry_delivery(1) == (None, False)


def test_a_database_that_is_away_is_a_problem_of_its_own():
    with running_api(deliveries=FakeDeliveries(failure="the outbox cannot be read: it is away")) as api:
        for _ in range(CONCURRENT_REQUESTS + 1):  # a place is given back each time
            answer = api.get(PATH)
            assert (answer.status, answer.json["type"]) == (503, "urn:gpusteward:problem:ledger-failed")


def test_a_lost_table_is_said_in_words(tmp_path: Path):
    engine = open_ledger(tmp_path)
    with Receiver() as receiver:
        settings = settings_of(control={"enabled": True, "api_url": receiver.url})
        with running_notifier(settings, engine) as notifier:
            with engine.begin() as connection:
                connection.exec_driver_sql("DROP TABLE outbox")
            with pytest.raises(SourceError, match="the outbox cannot be read"):
                notifier.read_deliveries(None, 10)
    engine.dispose()
