"""Progress messages on standard error."""

import sys


def print_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
