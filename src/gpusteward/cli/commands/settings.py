"""`gpusteward settings`: print the effective settings of the analyzer, and where each one comes from."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpusteward.cli.extras import build_settings_parser, needing
from gpusteward.cli.flags import OUTPUTS, FlagParser
from gpusteward.cli.output.formats import Cells, Column, write_rows
from gpusteward.core.messages import Message
from gpusteward.logs import configure_logs

if TYPE_CHECKING:
    from gpusteward.analyzer.settings.effective import Shown

KEYS = ("setting", "value", "source", "origin", "about")
CELL_LENGTH = 60  # longer values are whole in the JSON


def build_parser() -> FlagParser:
    """With the flags of `serve`."""
    parser = build_settings_parser("settings", "Print the effective settings and their origin.")
    parser.add_argument("--output", "-o", choices=OUTPUTS, default="table", help="how to print them (default table)")
    return parser


def run(arguments: Sequence[str]) -> int:
    """Read what `serve` would read, with the same flags. Raises ConfigurationError for what a person can mend."""
    with needing("analyzer"):
        from gpusteward.analyzer.settings import effective, flags
        from gpusteward.analyzer.settings.file import SettingsFile
    namespace = build_parser().parse(arguments)
    configure_logs(level="warning", as_json=False)
    file = SettingsFile(flags.flags_from(namespace), os.environ, directory=Path.cwd())
    rows = [_row(each) for each in effective.show(file.effective)]
    write_rows(rows, COLUMNS, keys=KEYS, output=namespace.output)
    return 0


def _row(shown: "Shown") -> Cells:
    return {
        "setting": shown.path,
        "value": shown.value,
        "source": shown.source.value,
        "origin": shown.origin,
        "about": shown.about,
    }


def _cell(value: object) -> str:
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= CELL_LENGTH else text[: CELL_LENGTH - 1] + "…"


COLUMNS = (
    Column("setting", Message("setting", "设置")),
    Column("value", Message("value", "值"), _cell, is_flexible=True),
    Column("origin", Message("origin", "来源"), is_flexible=True),
)
