"""`gpusteward serve`: run the analyzer."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from gpusteward.cli.flags import FlagParser, add_language_flag, make_parser
from gpusteward.cli.program import require_libraries
from gpusteward.logs import configure_logs
from gpusteward.process_exit import exit_without_threads


def build_settings_parser(name: str, description: str, *, without: Collection[str] = ()) -> FlagParser:
    """The analyzer's settings as flags, also for `settings`, `up` and `demo`, without those that the command sets.

    Raises ModuleNotFoundError if the analyzer's libraries are missing.
    """
    from gpusteward.analyzer.settings.flags import add_settings_flags

    parser = make_parser(name, description)
    add_settings_flags(parser, without=without)
    add_language_flag(parser)
    return parser


def build_parser() -> FlagParser:
    return build_settings_parser("serve", "Run the analyzer: compute verdicts on the GPUs of a cluster and serve them.")


def run(arguments: Sequence[str]) -> int:
    """Run the analyzer until a signal stops it. Raises ConfigurationError."""
    with require_libraries():
        from gpusteward.analyzer.server.listen_socket import open_socket
        from gpusteward.analyzer.settings.file import SettingsFile
        from gpusteward.analyzer.settings.flags import flags_from

        flags = flags_from(build_parser().parse(arguments))
    configure_logs(level="info", as_json=False)
    file = SettingsFile(flags, os.environ, directory=Path.cwd())
    configure_logs(level=file.settings.logging.level, as_json=file.settings.logging.as_json)
    listening = open_socket(file.settings.server)
    with require_libraries():
        from gpusteward.analyzer.server.serve import run_analyzer
    code = run_analyzer(file, listening=listening)
    exit_without_threads(code)
    return code
