"""How every bench reports: limits that hold or are missed, tables, and one Markdown page in bench/results/."""

import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.measure import About, print_progress

Row = Sequence[str]
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Bar:
    """A limit, and what was measured."""

    promise: str
    limit: str
    measured: str
    holds: bool
    method: str = ""

    @property
    def verdict(self) -> str:
        return "PASS" if self.holds else "MISSED"


def at_most(promise: str, limit: float, measured: float, unit: str, method: str) -> Bar:
    """The limit of a number."""
    return Bar(promise, f"{limit:g} {unit}", f"{measured:.3g}", measured <= limit, method)


def render_table(header: Row, rows: Iterable[Row]) -> str:
    """A Markdown table, readable as it is: the first column to the left, numbers to the right."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "".join(f"| {' | '.join(_align(line, widths))} |\n" for line in (lines[0], rule, *lines[1:]))


def _align(line: Row, widths: Sequence[int]) -> list[str]:
    return [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]


def render_bars(bars: Iterable[Bar]) -> str:
    """Each limit with its result, then how it is measured."""
    bars = list(bars)
    rows = [(bar.promise, bar.limit, bar.measured, bar.verdict) for bar in bars]
    methods = "".join(f"- {bar.promise}: {bar.method}.\n" for bar in bars if bar.method)
    table = render_table(("limit of", "limit", "measured", "verdict"), rows)
    return f"{table}\n{methods}" if methods else table


def render_head(title: str, about: About, *notes: str) -> str:
    """The title, how the page was made, and where."""
    versions = [
        f"{side}: {', '.join(f'{name} {version}' for name, version in packages.items())}"
        for side, packages in about.versions.items()
    ]
    lines = [
        f"Made by `{about.command}` on {about.date}.",
        f"{about.processor}, {about.cores} cores; {about.kernel}; {about.python}; {about.c_library}",
        *versions,
        *notes,
    ]
    return f"# {title}\n\n" + "".join(f"- {line}\n" for line in lines)


def publish(name: str, make_page: Callable[[], str], *, is_dry: bool = False) -> int:
    """Measure, write the page and print it; the exit code is 0 whether the limits hold or not."""
    for stopping in (signal.SIGINT, signal.SIGTERM):  # stops the programs it started
        signal.signal(stopping, signal.default_int_handler)
    try:
        page = make_page().rstrip() + "\n"
    except KeyboardInterrupt:
        print_progress("interrupted: everything is stopped, nothing is written")
        return 130
    if not is_dry:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.md").write_text(page)
        print_progress(f"written to bench/results/{name}.md")
    print(page)
    return 0
