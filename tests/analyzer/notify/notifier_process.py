"""Runs cycle after cycle until it is killed: `python -m tests.analyzer.notify.notifier_process DB URL FIRST`.

Prints the number of each cycle once its events are stored.
"""

import sys
from itertools import count

from gpusteward.analyzer.ledger.db_engine import open_engine
from gpusteward.analyzer.notify.notifier import Notifier
from tests.analyzer.notify.notifier_setup import gpu_of, result_of, settings_of
from tests.analyzer.usage_tables import AT


def main(database: str, url: str, first: str) -> None:
    settings = settings_of(control={"enabled": True, "api_url": url, "timeout": 1})
    notifier = Notifier(settings, open_engine(database), poll_seconds=0.01)
    notifier.start()
    for number in count(int(first)):
        allocations = [gpu_of("ml", f"web-{each}") for each in range(4)]
        notifier.notify(result_of(allocations, settings=settings, at=AT + 300 * number, idle_hours=0))
        print(number, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
