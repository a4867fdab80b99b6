"""`gpusteward agent`: serve what this node's GPUs do, and for whom."""

import os
from collections.abc import Sequence

from gpusteward.agent.settings.table import AgentSettings, read_settings
from gpusteward.core.errors import ConfigurationError
from gpusteward.logs import Log, configure_logs

log = Log(__name__)


def run(arguments: Sequence[str]) -> int:
    """Read the settings, then run the agent until it is told to stop.

    Raises ConfigurationError for what a person can mend.
    """
    settings = read_settings(arguments, os.environ)
    configure_logs(level="debug" if settings.debug else settings.log_level, as_json=settings.log_format == "json")
    if settings.ignored:
        log.warning("flags_ignored", flags=",".join(settings.ignored), reason="they mean nothing without DCGM")
    return _run_agent(settings)


def _run_agent(settings: AgentSettings) -> int:
    """The agent's libraries are loaded only now: a mistake in a flag is told without them."""
    try:
        from gpusteward.agent.app import run_agent
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("gpusteward"):
            raise
        raise ConfigurationError(
            f"the agent needs {error.name!r}, which is not installed: pip install 'gpusteward[agent]'"
        ) from error
    return run_agent(settings)
