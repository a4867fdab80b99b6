"""`gpusteward backfill`: idle spells of the past, from the engine's history into the ledger."""

import os
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from gpusteward.analyzer.reports.render.quantities import moment
from gpusteward.cli.commands.serve import build_settings_parser
from gpusteward.cli.flags import FlagParser, read_duration
from gpusteward.cli.output import quantities
from gpusteward.cli.output.tables import show_progress
from gpusteward.cli.program import EXIT_OK, require_libraries
from gpusteward.core.errors import ConfigurationError
from gpusteward.logs import configure_logs

if TYPE_CHECKING:
    from gpusteward.analyzer.backfill import Estimate


def build_parser() -> FlagParser:
    """The analyzer's settings, and what to fill. Raises ModuleNotFoundError if the analyzer's libraries are missing."""
    parser = build_settings_parser(
        "backfill",
        "Add idle spells of the time before the ledger's first record, from the history of the engine in the settings: "
        "chances of resumption and replays then need not wait. Recorded time does not change, and a second run adds "
        "nothing. May run beside the analyzer.",
        without=("--address", "--tokens-file", "--web-config-file"),
    )
    parser.add_argument(
        "--since", default="14d", metavar="TIME", help="how far back: 24h, 14d, 4w ago, or a date (default 14d)"
    )
    parser.add_argument(
        "--step",
        type=read_duration,
        metavar="DURATION",
        help="time between two cycles of the past, at most the window (default: scheduler.interval); a longer one "
        "needs fewer queries",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the estimate only; add nothing")
    return parser


def run(arguments: Sequence[str]) -> int:
    """Raises ConfigurationError, SourceError."""
    with require_libraries():
        options = build_parser().parse(arguments)

        from gpusteward.analyzer.backfill import Backfill
        from gpusteward.analyzer.settings.file import SettingsFile
        from gpusteward.analyzer.settings.flags import flags_from
    configure_logs(level="warning", as_json=False)
    now_ms = int(time.time() * 1000)
    since_ms = _read_since(options.since, now_ms)
    settings = SettingsFile(flags_from(options), os.environ, directory=Path.cwd()).settings
    with closing(Backfill(settings, since_ms=since_ms, now_ms=now_ms, step_seconds=options.step)) as backfill:
        estimate = backfill.estimate()
        if not estimate.cycles:
            print(f"nothing to add: the time since {moment(since_ms)} UTC is recorded or back-filled already")
            return EXIT_OK
        print(_describe(estimate), flush=True)
        if not options.dry_run:
            waiting = "back-filling idle spells ..."
            with show_progress("back-filling idle spells", without_terminal=waiting) as advance:
                filled = backfill.fill(estimate, advance)
            print(
                f"done; cycles: {filled.cycles}, without data: {filled.failed}; idle spells of that time "
                f"in the ledger: {filled.spells}"
            )
    return EXIT_OK


def _read_since(text: str, now_ms: int) -> int:
    from gpusteward.analyzer.reports.report_query import parse_time_range

    try:
        return parse_time_range(text, None, now_ms=now_ms)[0]
    except ConfigurationError as error:
        raise ConfigurationError(f"--since: {error}") from None


def _describe(estimate: "Estimate") -> str:
    return (
        f"{moment(estimate.spans[0].begin_ms)} to {moment(estimate.spans[-1].end_ms)} UTC; cycles: "
        f"{estimate.cycles}, one every {estimate.step_seconds} s; queries to the engine: about "
        f"{estimate.queries}; time: about {quantities.duration(max(1.0, estimate.seconds))}"
    )
