"""`gpusteward serve`: judge the GPUs of a cluster, and serve what was found."""

import os
from collections.abc import Sequence
from pathlib import Path

from gpusteward.cli.extras import build_settings_parser, needing
from gpusteward.cli.flags import FlagParser
from gpusteward.logs import configure_logs


def build_parser() -> FlagParser:
    return build_settings_parser("serve", "Judge the GPUs of a cluster, and serve the result.")


def run(arguments: Sequence[str]) -> int:
    """Read the settings, then run the analyzer until it is told to stop.

    Raises ConfigurationError for what a person can mend.
    """
    with needing("analyzer"):
        from gpusteward.analyzer.settings.file import SettingsFile
        from gpusteward.analyzer.settings.flags import flags_from

        given = flags_from(build_parser().parse(arguments))
    configure_logs(level="info", as_json=False)
    file = SettingsFile(given, os.environ, directory=Path.cwd())
    configure_logs(level=file.settings.logging.level, as_json=file.settings.logging.as_json)
    with needing("analyzer"):
        from gpusteward.analyzer.serve import exit_without_threads, run_analyzer
    code = run_analyzer(file)
    exit_without_threads()
    return code
