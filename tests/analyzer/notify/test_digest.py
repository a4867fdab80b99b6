"""The weekly digest."""

from datetime import date
from pathlib import Path

from sqlalchemy import text

from gpusteward.analyzer.ledger.ledger import Ledger
from gpusteward.analyzer.notify.notices.digest import read_week, write_digest
from gpusteward.analyzer.notify.notices.messages import MessageOptions
from gpusteward.analyzer.prices import PriceSettings
from gpusteward.analyzer.settings.ledger import LedgerSettings
from tests.analyzer.notify.notifier_setup import BUSY, IDLE, gpu_of, result_of, running_notifier, settings_of
from tests.analyzer.usage_tables import AT
from tests.fakes.receivers import Receiver
from tests.waiting import wait_until

HOOK = "/open-apis/bot/v2/hook/0a1b-2c3d"


def test_the_digest_reports_the_recorded_week_and_is_sent_once(tmp_path: Path):
    ledger = Ledger(LedgerSettings(directory=tmp_path))
    prices = {"prices": PriceSettings(per_gpu_hour={"H100": 3.0}).model_dump()}
    now = [AT]
    with Receiver() as receiver:
        channel = {"channels": {"ops": receiver.url + HOOK}, "language": "en", "idle_minutes": 100_000}
        settings = settings_of(notify=channel | {"digest": "monday 09:00"}, **prices)
        allocations, rows = (
            [gpu_of("ml", "web"), gpu_of("ml", "train"), gpu_of("ml", "train", gpu=1)],
            [IDLE, BUSY, BUSY],
        )
        for back in range(12, -1, -1):
            result = result_of(allocations, rows, settings=settings, at=AT - back * 300)
            ledger.record(result)
        with running_notifier(settings, ledger.engine, clock=lambda: now[0]) as notifier:
            for after in (0, 300):
                now[0] = AT + after
                notifier.notify(result_of(allocations, rows, settings=settings, at=AT))
            receiver.wait_for(lambda it: len(it.accepted) == 1)
            wait_until(lambda: not notifier.counters.pending.get("notice"))
    ledger.close()
    assert len(receiver.accepted) == 1
    assert receiver.texts[0].splitlines() == [
        "GPU digest for the week ending 2026-09-21",
        "As of 2026-09-21 14:13 UTC",
        "3.0 GPU-hours allocated: 2.0 used, 1.0 idle, 0.0 unknown.",
        "The idle GPU-hours cost 3.00 USD.",
        "Workloads with the most idle time:",
        "- ml/Deployment/web: 1.0 of 1.0 GPU-hours idle, cost 3.00 USD",
        "At that time 1 workload with 1 GPU was completely idle; 0 more had some unused GPUs.",
    ]


def test_a_digest_without_records_states_that_and_lists_what_is_idle_now(tmp_path: Path):
    settings = settings_of()
    result = result_of([gpu_of("ml", "web"), gpu_of("chat", "x")], settings=settings)
    options = MessageOptions("en", "UTC", "USD", repeat_hours=24, window_seconds=600)
    digest = write_digest(None, result, day=date(2026, 9, 21), namespaces=("ml",), options=options)
    assert "the ledger is disabled" in digest
    assert "At that time 1 workload with 1 GPU was completely idle" in digest
    ledger = Ledger(LedgerSettings(directory=tmp_path))
    empty = read_week(ledger.engine, result, namespaces=(), now=AT)
    assert "No usage was recorded" in write_digest(empty, result, day=date(2026, 9, 21), namespaces=(), options=options)
    ledger.close()


def test_a_digest_that_cannot_be_read_does_not_stop_other_notices(tmp_path: Path):
    ledger = Ledger(LedgerSettings(directory=tmp_path))
    with ledger.engine.begin() as connection:
        connection.execute(text("DROP TABLE usage_hourly"))
    with Receiver() as receiver:
        channel = {"channels": {"ops": receiver.url + HOOK}, "language": "en", "digest": "monday 09:00"}
        settings = settings_of(notify=channel)
        with running_notifier(settings, ledger.engine, clock=lambda: AT) as notifier:
            notifier.notify(result_of([gpu_of("ml", "web")], settings=settings))
            receiver.wait_for(lambda it: len(it.accepted) == 1)
            assert notifier.describe()["fault"] == ""
    ledger.close()
    assert receiver.texts[0].startswith("Idle GPUs: ml")
