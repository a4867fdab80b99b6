"""`gpusteward settings`: print the effective settings of the analyzer, and where each one comes from."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from gpusteward.core.errors import ConfigurationError
from gpusteward.logs import configure_logs

if TYPE_CHECKING:
    from gpusteward.analyzer.settings.showing import Shown

OUTPUTS = ("table", "json")
CELL_LENGTH = 60  # longer values are whole in the JSON


def run(arguments: Sequence[str]) -> int:
    """Read what `serve` would read, with the same flags. Raises ConfigurationError for what a person can mend."""
    try:
        from gpusteward.analyzer.settings import flags, showing
        from gpusteward.analyzer.settings.file import SettingsFile
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("gpusteward"):
            raise
        raise ConfigurationError(
            f"the analyzer needs {error.name!r}, which is not installed: pip install 'gpusteward[analyzer]'"
        ) from error
    parser = flags.FlagParser(prog="gpusteward settings", description="Print the effective settings and their origin.")
    flags.add_settings_flags(parser)
    parser.add_argument("--output", "-o", choices=OUTPUTS, default="table", help="how to print them (default table)")
    namespace = parser.parse(arguments)
    configure_logs(level="warning", as_json=False)
    file = SettingsFile(flags.flags_from(namespace), os.environ, directory=Path.cwd())
    rows = [_row(each) for each in showing.show(file.effective)]
    (_print_json if namespace.output == "json" else _print_table)(rows, sys.stdout)
    return 0


Row = Mapping[str, object]


def _row(shown: "Shown") -> Row:
    return {
        "setting": shown.path,
        "value": shown.value,
        "source": shown.source.value,
        "origin": shown.origin,
        "about": shown.about,
    }


def _print_json(rows: Sequence[Row], out: TextIO) -> None:
    print(json.dumps(rows, indent=2, ensure_ascii=False), file=out)


def _print_table(rows: Sequence[Row], out: TextIO) -> None:
    texts = [("SETTING", "VALUE", "ORIGIN")]
    texts += [(str(row["setting"]), _cell(row["value"]), str(row["origin"])) for row in rows]
    wide, middle = (max(len(text[column]) for text in texts) for column in (0, 1))
    for setting, value, origin in texts:
        print(f"{setting:<{wide}}  {value:<{middle}}  {origin}".rstrip(), file=out)


def _cell(value: object) -> str:
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= CELL_LENGTH else text[: CELL_LENGTH - 1] + "…"
