"""`gpusteward settings`: print the effective settings of the analyzer and where each one comes from."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpusteward.cli.commands.serve import build_settings_parser
from gpusteward.cli.flags import FlagParser, add_output_flags, language_of
from gpusteward.cli.output.tables import Cells, Column, write_rows
from gpusteward.cli.program import EXIT_OK, require_libraries
from gpusteward.core.messages import Message
from gpusteward.logs import configure_logs

if TYPE_CHECKING:
    from gpusteward.analyzer.settings.masked import MaskedSetting

KEYS = ("setting", "value", "source", "origin", "about")
MAX_CELL_LENGTH = 60  # longer values are cut in the table, not in JSON and CSV


def build_parser() -> FlagParser:
    """The flags of `serve`, and the output format."""
    parser = build_settings_parser("settings", "Print the analyzer's effective settings and where each comes from.")
    add_output_flags(parser)
    return parser


def run(arguments: Sequence[str]) -> int:
    """Read the settings as `serve` does. Raises ConfigurationError."""
    with require_libraries():
        from gpusteward.analyzer.settings import flags, masked
        from gpusteward.analyzer.settings.file import SettingsFile
    options = build_parser().parse(arguments)
    configure_logs(level="warning", as_json=False)
    file = SettingsFile(flags.flags_from(options), os.environ, directory=Path.cwd())
    rows = [_row(each) for each in masked.mask_settings(file.effective)]
    write_rows(rows, COLUMNS, keys=KEYS, output=options.output, language=language_of(options))
    return EXIT_OK


def _row(setting: "MaskedSetting") -> Cells:
    return {
        "setting": setting.path,
        "value": setting.value,
        "source": setting.source.value,
        "origin": setting.origin,
        "about": setting.about,
    }


def _cell(value: object) -> str:
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_CELL_LENGTH else text[: MAX_CELL_LENGTH - 1] + "…"


COLUMNS = (
    Column("setting", Message("setting", "配置项")),
    Column("value", Message("value", "值"), _cell, is_flexible=True),
    Column("origin", Message("origin", "来源"), is_flexible=True),
)
