"""`python -m bench.web_server GPUS`: the API with a simulated result, and a new one for every line on standard input.

Prints its address, then a line for every published result. Runs in a process of its own, so that it does not take time
from what is measured.
"""

import sys
import time
from dataclasses import replace

from gpusteward.analyzer.api.http.static_files import UiBundle
from tests.analyzer.api.server import running_api
from tests.web.fleets import make_fleet

STEP_SECONDS = 30.0
"""Between two results: with time running faster, the bench publishes them as fast as the page shows them."""


def main() -> None:
    gpus, began = int(sys.argv[1]), time.time()
    results = [make_fleet(gpus, at=began, seed=seed) for seed in range(2)]
    with running_api(results[0], ui=UiBundle(), clock=time.time) as api:
        print(api.url, flush=True)
        for number, _ in enumerate(sys.stdin, 2):
            # Two sets of verdicts in turn, so that every update changes a third of the rows.
            at = began + STEP_SECONDS * (number - 1)
            api.publish(replace(results[number % 2], number=number, at=at))
            print(number, flush=True)


if __name__ == "__main__":
    main()
