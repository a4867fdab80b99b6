"""For all tests: errors in threads fail the test, and tests without their real component are skipped."""

import os
import shutil
from collections.abc import Callable

import hypothesis
import pytest

pytest_plugins = [
    "tests.fakes.nvml_library",
    "tests.fakes.dcgm_library",
    "tests.kubernetes.cluster",
    "tests.deploy.helm",
]

hypothesis.settings.register_profile("tests", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("tests")

NO_SKIP = os.environ.get("GPUSTEWARD_NO_SKIP") == "1"


@pytest.fixture(scope="session")
def component() -> Callable[[str], str]:
    """Path of a real program; skips with the reason where it is not installed, fails in CI."""

    def find(program: str) -> str:
        path = shutil.which(program)
        if path is None:
            give_up(f"{program} is not installed; `make components` installs it")
        return str(path)

    return find


def give_up(reason: str) -> None:
    """Skip, or fail where a skip is a failure."""
    if NO_SKIP:
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """In CI a skip is a failure, wherever it comes from."""
    report = yield
    if NO_SKIP and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"
    return report
