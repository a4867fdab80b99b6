"""`.ci/budgets.py`: a package that grows past its budget fails the check."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.documents import ROOT


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / ".ci/budgets.py"))


def test_packages_of_the_analyzer_are_counted_each_for_itself(script: dict[str, Any], tmp_path: Path) -> None:
    for name in ("logs.py", "agent/nvml/session.py", "agent/app.py", "analyzer/app.py", "analyzer/judge/deep/score.py"):
        path = tmp_path / "src/gpusteward" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("first\nsecond\n")

    assert script["count_packages"](tmp_path) == {
        ".": (1, 2),
        "agent": (2, 4),
        "analyzer": (1, 2),
        "analyzer/judge": (1, 2),
    }


def test_three_percent_over_the_budget_are_allowed_and_not_more(script: dict[str, Any]) -> None:
    compare, size = script["compare"], script["Size"]
    budgets = {"agent": {"files": 10, "lines": 1000}}

    assert compare({"agent": size(11, 1030)}, budgets) == []
    assert compare({"agent": size(10, 1031)}, budgets) == [
        "agent has 1,031 lines, more than 3 % over its budget of 1,000"
    ]
    assert compare({"agent": size(12, 1000)}, budgets) == ["agent has 12 files, more than 3 % over its budget of 10"]


def test_every_package_has_a_budget_and_every_budget_a_package(script: dict[str, Any]) -> None:
    assert script["compare"]({"core": script["Size"](1, 1)}, {"agent": {"files": 1, "lines": 1}}) == [
        "core has no budget",
        "agent has a budget and no files",
    ]
