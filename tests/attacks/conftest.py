"""The programs that are attacked, each started once."""

from collections.abc import Iterator

import pytest

from tests.attacks.victims import Victim, running_agent, running_analyzer, running_guarded_analyzer


@pytest.fixture(scope="module")
def analyzer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    with running_analyzer(tmp_path_factory.mktemp("analyzer")) as victim:
        yield victim


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    with running_guarded_analyzer(tmp_path_factory.mktemp("guarded")) as victim:
        yield victim


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    with running_agent(tmp_path_factory.mktemp("agent")) as victim:
        yield victim
