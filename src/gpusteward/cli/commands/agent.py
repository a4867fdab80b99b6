"""`gpusteward agent`: export the GPU metrics of this node."""

import os
from collections.abc import Sequence

from gpusteward.agent.settings.table import read_settings
from gpusteward.cli.program import require_libraries
from gpusteward.logs import Log, configure_logs
from gpusteward.process_exit import exit_without_threads

log = Log(__name__)


def run(arguments: Sequence[str]) -> int:
    """Run until a signal stops it. Raises ConfigurationError.

    The agent's libraries are loaded after the settings: mistakes in them are reported without these libraries.
    """
    settings = read_settings(arguments, os.environ)
    configure_logs(level="debug" if settings.debug else settings.log_level, as_json=settings.log_format == "json")
    for name, reason in settings.ignored:
        log.warning("setting_ignored", name=name, reason=reason)
    with require_libraries():
        from gpusteward.agent.app import run_agent
    code = run_agent(settings)
    exit_without_threads(code)
    return code
