"""What a run says while it runs: results go to files, this to whoever waits."""

import sys


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
