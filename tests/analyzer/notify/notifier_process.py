"""Stores notices until it is killed: `python -m tests.analyzer.notify.notifier_process DB URL FIRST`.

Prints the number of each cycle once its notices are stored.
"""

import json
import sys
import time
from itertools import count

from gpusteward.analyzer.ledger.database.db_engine import open_engine
from gpusteward.analyzer.notify.channels import build_senders
from gpusteward.analyzer.notify.outbox.dispatcher import Dispatcher
from gpusteward.analyzer.notify.outbox.records import NOTICE, DeliveryCounters, OutboxEvent, channel_target
from gpusteward.analyzer.notify.outbox.store import Outbox
from tests.analyzer.notify.notifier_setup import settings_of

HOOK = "/open-apis/bot/v2/hook/x"


def main(database: str, url: str, first: str) -> None:
    settings = settings_of(notify={"channels": {"ops": url + HOOK}})
    counters = DeliveryCounters()
    outbox = Outbox(open_engine(database), settings.outbox, counters)
    dispatcher = Dispatcher(outbox, settings.outbox, counters, poll_seconds=0.01)
    dispatcher.apply_settings(settings.outbox, build_senders(settings.control, settings.notify))
    dispatcher.start()
    for number in count(int(first)):
        outbox.add([_notice(pod, number) for pod in range(4)], at_ms=round(time.time() * 1000))
        dispatcher.wake()
        print(number, flush=True)


def _notice(pod: int, number: int) -> OutboxEvent:
    body = json.dumps({"pod": pod, "number": number})
    return OutboxEvent(f"notice/web-{pod}", f"{pod}-{number}", NOTICE, channel_target("ops", 0), body)


if __name__ == "__main__":
    main(*sys.argv[1:])
