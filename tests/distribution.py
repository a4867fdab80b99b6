"""How the files of tests are divided among the workers of pytest-xdist: the longest first, so that no worker is left
alone with one of them at the end, and those that share something large in one worker."""

import os

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

LONGEST = (
    "tests/web/test_reclaim.py",
    "tests/local/test_demo_reclaim.py",
    "tests/web/test_pages.py",
    "tests/analyzer/reclaim/test_real_prohibitions.py",
    "tests/analyzer/reclaim/test_real_kinds.py",
    "tests/deploy/test_chart_release.py",
    "tests/deploy/test_chart_processes.py",
    "tests/web/test_sites.py",
    "tests/analyzer/test_serve.py",
    "tests/analyzer/test_backfill.py",
    "tests/analyzer/reclaim/test_real_recovery.py",
    "tests/analyzer/reclaim/test_real_chaos.py",
    "tests/local/test_demo.py",
    "tests/deploy/test_autoscaling.py",
    "tests/deploy/test_keda.py",
    "tests/deploy/test_images.py",
    "tests/analyzer/ledger/test_crashes.py",
    "tests/analyzer/test_memory_budget.py",
    "tests/analyzer/test_replicas.py",
    "tests/test_process_exit.py",
)
TOGETHER = {
    "tests/web/test_people.py": "tests/web/test_pages.py",  # the demo
    "tests/web/test_pictures.py": "tests/web/test_pages.py",
    "tests/deploy/test_chart.py": "tests/deploy/test_chart_objects.py",  # the rendered chart
    "tests/deploy/test_chart_values.py": "tests/deploy/test_chart_objects.py",
}
"""Files that run in the worker of another file."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a run with workers: the longest files, then those that are slow."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        slow = {file_of(item.nodeid) for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: _find_position(file_of(item.nodeid), slow))


def file_of(nodeid: str) -> str:
    return nodeid.split("::", 1)[0]


def _find_position(file: str, slow: set[str]) -> int:
    file = TOGETHER.get(file, file)
    return LONGEST.index(file) if file in LONGEST else len(LONGEST) + (file not in slow)


class _Scheduling(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return TOGETHER.get(file_of(nodeid), file_of(nodeid))


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _Scheduling | None:
    if config.getvalue("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False  # it would move files with few tests, the longest ones, to the end
    return _Scheduling(config, log)
