"""`gpusteward up`: agent and analyzer on the GPUs of this machine."""

import os
from collections.abc import Sequence

from gpusteward.cli.commands.serve import build_settings_parser
from gpusteward.cli.flags import FlagParser, language_of
from gpusteward.cli.program import require_libraries
from gpusteward.process_exit import exit_without_threads


def build_parser() -> FlagParser:
    about = "Run agent and analyzer on the GPUs of this machine."
    return build_settings_parser("up", about, without=("--prometheus-url",))


def run(arguments: Sequence[str]) -> int:
    """Serve until Ctrl-C. Raises SourceError without a GPU, ConfigurationError for invalid settings."""
    with require_libraries():
        from gpusteward.analyzer.settings.flags import flags_from
    options = build_parser().parse(arguments)
    with require_libraries():
        from gpusteward.local.up import run_up
    code = run_up(flags_from(options), os.environ, language=language_of(options))
    exit_without_threads(code)
    return code
