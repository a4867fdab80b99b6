"""The programs that are attacked, each started once."""

import os
from collections.abc import Iterator

import pytest

from tests.agent.test_agent_process import running
from tests.analyzer.serve_process import running_serve
from tests.attacks.victims import TOKENS, Victim
from tests.fakes import nvml_scenarios as nvml
from tests.fakes.nvml_library import environment

NOWHERE = "http://127.0.0.1:9"
"""An engine that does not answer: cycles fail at once and cost next to nothing."""


@pytest.fixture(scope="module")
def analyzer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    folder = tmp_path_factory.mktemp("analyzer")
    with running_serve(folder, prometheus_url=NOWHERE, env={"PATH": os.environ["PATH"]}) as server:
        yield Victim(server.url, server.process.pid)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """An analyzer that asks for tokens, those of `victims.TOKENS`."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "tokens").write_text("".join(f"{role}: {token}\n" for role, token in TOKENS.items()))
    flags = (f"--tokens-file={folder / 'tokens'}", "--set=server.anonymous_reads=never")
    with running_serve(folder, *flags, prometheus_url=NOWHERE, env={"PATH": os.environ["PATH"]}) as server:
        yield Victim(server.url, server.process.pid)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    scenario = tmp_path_factory.mktemp("agent") / "scenario"
    nvml.a100x8().write(scenario)
    with running(env=environment(scenario)) as running_agent:
        yield Victim(running_agent.url, running_agent.process.pid)
