"""`gpusteward serve`: judge the GPUs of a cluster, and serve what was found."""

import os
from collections.abc import Sequence
from pathlib import Path

from gpusteward.core.errors import ConfigurationError
from gpusteward.logs import configure_logs


def run(arguments: Sequence[str]) -> int:
    """Read the settings, then run the analyzer until it is told to stop.

    Raises ConfigurationError for what a person can mend.
    """
    try:
        from gpusteward.analyzer.settings import flags
        from gpusteward.analyzer.settings.file import SettingsFile
    except ModuleNotFoundError as error:
        raise explain_missing(error, "analyzer") from error
    parser = flags.FlagParser(prog="gpusteward serve", description="Judge the GPUs of a cluster, and serve the result.")
    flags.add_settings_flags(parser)
    given = flags.flags_from(parser.parse(arguments))
    configure_logs(level="info", as_json=False)
    file = SettingsFile(given, os.environ, directory=Path.cwd())
    configure_logs(level=file.settings.logging.level, as_json=file.settings.logging.as_json)
    try:
        from gpusteward.analyzer.app import leave_threads_behind, run_analyzer
    except ModuleNotFoundError as error:
        raise explain_missing(error, "analyzer") from error
    code = run_analyzer(file)
    leave_threads_behind()
    return code


def explain_missing(error: ModuleNotFoundError, extra: str) -> Exception:
    """A library that is missing is told with the extra that brings it; a file of our own is a fault."""
    if (error.name or "").startswith("gpusteward"):
        return error
    return ConfigurationError(f"this needs {error.name!r}, which is not installed: pip install 'gpusteward[{extra}]'")
