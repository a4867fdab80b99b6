"""rich, loaded only where it is needed: a console for tables, and a progress bar."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

Advance = Callable[[int, int], None]
"""Called with the number of steps done, and of all steps."""
LINE_SECONDS = 10
"""How often a log, for example that of a Job, gets a line about work that takes long."""


def open_console(out: TextIO, *, width: int | None = None) -> "Console":
    """Raises ModuleNotFoundError if rich is not installed."""
    from rich.console import Console

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:
            """Handled by `main`; rich would exit with 1. Raises BrokenPipeError."""
            raise BrokenPipeError

    return PipeConsole(file=out, highlight=False, width=width)


@contextmanager
def show_progress(title: str, *, without_terminal: str = "") -> Iterator[Advance]:
    """A bar on standard error if that is a terminal, removed at the end.

    `without_terminal`: a line to print instead, and again with the steps done while the work goes on.
    """
    if not (sys.stderr.isatty() and find_spec("rich")):
        yield _print_lines(without_terminal) if without_terminal else lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _print_lines(text: str) -> Advance:
    print(text, file=sys.stderr, flush=True)
    printed_at = time.monotonic()

    def advance(done: int, total: int) -> None:
        nonlocal printed_at
        if time.monotonic() - printed_at >= LINE_SECONDS:
            print(f"{text} {done}/{total}", file=sys.stderr, flush=True)
            printed_at = time.monotonic()

    return advance
