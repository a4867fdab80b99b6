"""The alert rules fire on the analyzer's metrics, checked by promtool."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpusteward.core.analyzer_metrics import ANALYZER_METRICS

RULES = Path(__file__).parents[2] / "deploy/chart/gpusteward/files/rules/alerts.yaml"
ANALYZER = '{job="gpusteward",instance="a"}'
OWN = "gpusteward_analyzer_"


def series(name: str, values: str, labels: str = ANALYZER) -> dict[str, str]:
    assert name in {metric.name for metric in ANALYZER_METRICS}
    return {"series": name + labels, "values": values}


def state(word: str) -> str:
    return f'{{job="gpusteward",instance="a",state="{word}"}}'


AGE, LIMIT = OWN + "result_age_seconds", series(OWN + "result_max_age_seconds", "1500x30")
CASES: dict[str, tuple[list[dict[str, str]], str]] = {
    "recent": ([series(AGE, "10x30"), LIMIT], ""),
    "old": ([series(AGE, "1600+60x30"), LIMIT], "GpustewardResultOld"),
    "never had one": ([series("gpu_analysis_errors_total", "1+1x30"), LIMIT], "GpustewardResultOld"),
    "one failed cycle": ([series("gpu_analysis_errors_total", "1x30"), series(AGE, "10x30"), LIMIT], ""),
    "some unknown": ([series(OWN + "unknown_ratio", "0.4x30")], ""),
    "all unknown": ([series(OWN + "unknown_ratio", "1x30")], "GpustewardMostUnknown"),
    "targets lost": (
        [series(OWN + "scrape_targets", "0x30", state("up")), series(OWN + "scrape_targets", "9x30", state("down"))],
        "GpustewardTargetsLost",
    ),
    "one target lost": (
        [series(OWN + "scrape_targets", "8x30", state("up")), series(OWN + "scrape_targets", "1x30", state("down"))],
        "",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_an_alert_fires_when_the_data_is_old_or_lost(case: str, component: Callable[[str], str], tmp_path: Path):
    given, firing = CASES[case]
    alerts = ("GpustewardResultOld", "GpustewardMostUnknown", "GpustewardTargetsLost")
    tests: list[dict[str, Any]] = []
    for alert in alerts:
        found = {"alertname": alert, "eval_time": "20m", "exp_alerts": []}
        tests.append({"interval": "1m", "input_series": given, "alert_rule_test": [found]})
    path = tmp_path / "test.json"
    path.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run(
        [component("promtool"), "test", "rules", str(path)], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == (1 if firing else 0), done.stdout + done.stderr
    assert [alert for alert in alerts if f"alertname: {alert}" in done.stdout + done.stderr] == [firing] * bool(firing)


def test_the_rules_are_valid(component: Callable[[str], str]):
    subprocess.run([component("promtool"), "check", "rules", str(RULES)], check=True, capture_output=True, timeout=60)
