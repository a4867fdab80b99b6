"""A process that tells cycle after cycle until it is killed: `python -m tests.analyzer.telling_process DB URL FIRST`.

Prints the number of each cycle when it is told.
"""

import sys
import time

from gpusteward.analyzer.ledger.db_engine import open_engine
from gpusteward.analyzer.notify.notifier import Teller
from tests.analyzer.telling import held, result_of, settings_of
from tests.analyzer.usage_tables import AT


def main(database: str, url: str, first: str) -> None:
    settings = settings_of(control={"enabled": True, "api_url": url, "timeout": 1})
    teller = Teller(settings, open_engine(database), poll_seconds=0.01)
    teller.start()
    number = int(first)
    while True:
        allocations = [held("ml", f"web-{each}") for each in range(4)]
        teller.tell(result_of(allocations, settings=settings, at=AT + 300 * number, idle_hours=0))
        print(number, flush=True)
        number += 1
        time.sleep(0.005)


if __name__ == "__main__":
    main(*sys.argv[1:])
