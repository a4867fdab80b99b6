"""How far long work has come: a bar on a terminal, nothing anywhere else."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

Advance = Callable[[int, int], None]
"""Told how much is done, and of how much."""


@contextmanager
def show_progress(title: str, *, otherwise: str = "") -> Iterator[Advance]:
    """On standard error, so that what is piped stays clean; it leaves nothing behind.

    `otherwise`: a line to say once where there is no bar.
    """
    if not (sys.stderr.isatty() and find_spec("rich")):
        if otherwise:
            print(otherwise, file=sys.stderr, flush=True)
        yield _say_nothing
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _say_nothing(_done: int, _total: int) -> None:
    pass
