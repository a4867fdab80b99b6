"""For all tests: errors in threads fail the test, tests without their real component are skipped, and the folders of
tests are in memory where there is room for them."""

import gc
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from gpusteward.logs import ROOT

pytest_plugins = [
    "tests.fakes.nvml_library",
    "tests.fakes.dcgm_library",
    "tests.kubernetes.cluster",
    "tests.deploy.helm",
    "tests.distribution",
]

hypothesis.settings.register_profile("tests", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("tests")

NO_SKIP = os.environ.get("GPUSTEWARD_NO_SKIP") == "1"
MEMORY_FOLDER = Path("/dev/shm")
LEAST_FREE_BYTES = 4 << 30  # the folders of a whole run take about 2 GB
SYSTEM_FIXTURES = frozenset({"browser", "kubernetes"})
TEMPORARY_ROOT = "PYTEST_DEBUG_TEMPROOT"
YOUNG_OBJECTS = 10_000
LESS_COLLECTION = "400"
"""Prometheus, the control plane and other programs in Go use a fifth less processor time, and more memory."""


def pytest_configure() -> None:
    """The folder: ledgers are written in thousands of transactions, and tests would wait for the disk in each."""
    if TEMPORARY_ROOT not in os.environ and has_room(MEMORY_FOLDER):
        os.environ[TEMPORARY_ROOT] = str(MEMORY_FOLDER)
    os.environ.setdefault("GOGC", LESS_COLLECTION)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of the tier `system` are marked; elsewhere, tests that use a browser or a control plane belong to it."""
    for item in items:
        if SYSTEM_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("system")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is loaded here stays: no search for garbage visits it, now or later. Later ones are few."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS)
        gc.enable()


def has_room(folder: Path) -> bool:
    """Also for programs: in some containers nothing there may be run."""
    if not folder.is_dir():
        return False
    system = os.statvfs(folder)
    return system.f_bavail * system.f_frsize >= LEAST_FREE_BYTES and not system.f_flag & os.ST_NOEXEC


@pytest.fixture(autouse=True)
def keep_logging() -> Iterator[None]:
    """Commands configure the log of the whole process, and the next test may be of any file."""
    reset_logging()
    yield
    reset_logging()


def reset_logging() -> None:
    product = logging.getLogger(ROOT)
    product.handlers[:], product.propagate = [], True
    product.setLevel(logging.NOTSET)


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
