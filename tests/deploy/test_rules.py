"""Alert and recording rules on the real promtool; every alert has a runbook in both languages.

The cases of the alerts are promtool's own test files, tests/deploy/rules/*.yaml; those of the recording rules follow
from their names.
"""

import json
import re
import statistics
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpusteward.analyzer.metrics.analyzer_metrics import ANALYZER_METRICS
from gpusteward.core.metrics import METRICS
from tests.deploy.helm import CHART, Helm
from tests.documents import ROOT
from tests.yaml_texts import read_yaml

RULES = ROOT / "deploy/chart/gpusteward/files/rules"
CASES = sorted((ROOT / "tests/deploy/rules").glob("*.yaml"))
NOT_OURS = {"up", "container_memory_working_set_bytes", "container_spec_memory_limit_bytes", "kube_node_info"}
"""Of Prometheus itself, of the kubelet and of kube-state-metrics."""
Json = dict[str, Any]
Promtool = Callable[..., subprocess.CompletedProcess[str]]


def read_rules(name: str) -> list[Json]:
    return [rule for group in read_yaml((RULES / name).read_text())["groups"] for rule in group["rules"]]


ALERTS = {rule["alert"]: rule for rule in read_rules("alerts.yaml")}
RECORDED = read_rules("recording.yaml")
TESTS: list[Json] = [test for path in CASES for test in read_yaml(path.read_text())["tests"]]


@pytest.fixture(scope="module")
def promtool(component: Callable[[str], str]) -> Promtool:
    program = component("promtool")

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, *words], capture_output=True, text=True, timeout=60, check=False)

    return run


@pytest.mark.parametrize("path", sorted(RULES.glob("*.yaml")), ids=lambda path: path.name)
def test_the_rules_are_valid_and_pass_the_linter(promtool: Promtool, path: Path):
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name)
def test_alerts_fire_with_these_texts_and_only_then(promtool: Promtool, path: Path, tmp_path: Path):
    """With the group of these cases alone: no alert depends on another group, and all take four times as long."""
    groups = read_yaml((RULES / "alerts.yaml").read_text())["groups"]
    chosen = [group for group in groups if group["name"] == f"gpusteward-{path.stem}"]
    assert len(chosen) == 1
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump({"groups": chosen}))
    text, replaced = re.subn(r"(?m)^  - \S+/alerts\.yaml$", "  - alerts.yaml", path.read_text())
    assert replaced == 1
    (tmp_path / path.name).write_text(text)
    done = promtool("test", "rules", tmp_path / path.name)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_alert_depends_on_another():
    assert not [alert for alert, rule in ALERTS.items() if "ALERTS" in rule["expr"]]


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_has_a_case_that_fires_and_one_that_does_not(alert: str):
    expected = [
        check["exp_alerts"] for test in TESTS for check in test["alert_rule_test"] if check["alertname"] == alert
    ]
    assert any(expected)
    assert not all(expected)


def test_a_silent_case_has_series_of_its_alert():
    """Otherwise it would prove nothing."""
    for test in TESTS:
        for check in test["alert_rule_test"]:
            names = {series["series"].partition("{")[0] for series in test["input_series"]}
            assert names & find_metrics(ALERTS[check["alertname"]]["expr"]), test["name"]


def find_metrics(expression: str) -> set[str]:
    """Names in an expression; a pattern of names stands for all that match."""
    text = re.sub(r"(?m)#.*$", "", expression)
    patterns = re.findall(r'__name__=~"([^"]+)"', text)
    matched = {name for name in known_metrics() for pattern in patterns if re.fullmatch(pattern, name)}
    assert all(any(re.fullmatch(pattern, name) for name in known_metrics()) for pattern in patterns)
    text = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\b(on|without|by) \([^)]*\)", " ", text)
    words = set(re.findall(r"[A-Za-z_:][\w:]*(?!\w*\()", text))
    return matched | {word for word in words if "_" in word and not word.endswith("_over_time")} | (words & NOT_OURS)


def known_metrics() -> set[str]:
    dcgm = re.findall(r"`(DCGM_\w+)`", (ROOT / "docs/reference/metrics.md").read_text())
    return {metric.name for metric in (*METRICS, *ANALYZER_METRICS)} | set(dcgm) | NOT_OURS


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_uses_only_metrics_that_exist(alert: str):
    names = find_metrics(ALERTS[alert]["expr"])
    assert names
    assert names <= known_metrics()


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_has_a_severity_a_text_and_a_runbook_in_both_languages(alert: str):
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"docs/runbooks.md#{alert.lower()}"
    english = ["Meaning.", "Impact.", "Diagnosis.", "Mitigation."]
    for folder, parts in (("docs", english), ("docs/zh-CN", ["含义：", "影响：", "诊断：", "处理："])):
        section = read_runbooks(folder)[alert]
        assert re.findall(r"(?m)^\*\*(.+?)\*\*", section) == parts


def read_runbooks(folder: str) -> dict[str, str]:
    """Name of an alert -> its section."""
    page = (ROOT / folder / "runbooks.md").read_text(encoding="utf-8")
    parts = re.split(r"(?m)^## (.+)\n", page)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("folder", ["docs", "docs/zh-CN"])
def test_every_runbook_belongs_to_an_alert_and_is_listed(folder: str):
    assert list(read_runbooks(folder)) == list(ALERTS)
    page = (ROOT / folder / "runbooks.md").read_text(encoding="utf-8")
    assert re.findall(r"(?m)^\| \[(\w+)\]\(#(\w+)\) \| (critical|warning|info) \|$", page) == [
        (name, name.lower(), rule["labels"]["severity"]) for name, rule in ALERTS.items()
    ]


def test_the_chart_wraps_the_files_and_links_to_the_published_runbooks(helm: Helm):
    values = {**MONITORED, "prometheusRule": {"enabled": True, "runbookUrl": "https://wiki.example/gpu"}}
    wrapped = [each for each in helm.template(CHART, values) if each["kind"] == "PrometheusRule"]
    rules = [rule for each in wrapped for group in each["spec"]["groups"] for rule in group["rules"]]
    links = [rule["annotations"].pop("runbook_url") for rule in rules if "alert" in rule]
    assert links == [f"https://wiki.example/gpu#{name.lower()}" for name in ALERTS]
    plain = [rule for path in sorted(RULES.glob("*.yaml")) for rule in read_rules(path.name)]
    for rule in plain:
        rule.get("annotations", {}).pop("runbook_url", None)
        rule["expr"] = rule["expr"].replace('-analyzer"})', '-analyzer", namespace=~"(default)?"})')
    assert rules == plain


def read_chart_alerts(helm: Helm, release: str, values: Json) -> list[Json]:
    """The groups of alerts of a release, as the chart renders them."""
    objects = helm.template(CHART, {"prometheusRule": {"enabled": True}, **values}, release=release)
    rules = {each["metadata"]["name"]: each for each in objects if each["kind"] == "PrometheusRule"}
    (name,) = [name for name in rules if name.endswith("-alerts")]
    return list(rules[name]["spec"]["groups"])


def fire(promtool: Promtool, folder: Path, groups: list[Json], series: dict[str, str]) -> set[str]:
    """The alerts of targets and memory that fire after 30 minutes."""
    (folder / "alerts.yaml").write_text(yaml.safe_dump({"groups": groups}))
    firing = set()
    for alert in ("GpuAgentDown", "GpustewardAnalyzerDown", "GpustewardMemoryNearLimit"):
        test = {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "alert_rule_test": [{"eval_time": "30m", "alertname": alert, "exp_alerts": []}],
        }
        document = {"rule_files": ["alerts.yaml"], "evaluation_interval": "1m", "tests": [test]}
        (folder / "test.yaml").write_text(yaml.safe_dump(document))
        done = promtool("test", "rules", folder / "test.yaml")
        if done.returncode:
            assert f"alertname: {alert}" in done.stdout + done.stderr, done.stderr
            firing.add(alert)
    return firing


RELEASES = {
    "gpusteward": "gpusteward",
    "gpusteward-prod": "gpusteward-prod",
    "gpusteward-1763478000": None,
    "gpu": "gpu-gpusteward",
}
"""By the name of a release, the last but one as `--generate-name` makes it: the start of the names of its objects."""
MONITORED: Json = {"serviceMonitor": {"enabled": True}, "analyzer": {"tokens": {"existingSecret": "gpusteward-tokens"}}}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("prefix", ["", "team/"], ids=["ServiceMonitor", "PodMonitor"])
def test_alerts_on_targets_and_memory_know_the_names_of_every_release(
    release: str, prefix: str, helm: Helm, promtool: Promtool, tmp_path: Path
):
    groups, name = read_chart_alerts(helm, release, MONITORED), RELEASES[release] or release
    pod = f'{{namespace="team",pod="{name}-agent-x7k2p",container="agent"}}'
    good = {
        f'up{{job="{prefix}{name}-agent",instance="a"}}': "1x40",
        f'up{{job="{prefix}{name}-analyzer",instance="z"}}': "1x40",
        f"container_memory_working_set_bytes{pod}": "10x40",
        f"container_spec_memory_limit_bytes{pod}": "100x40",
    }
    assert fire(promtool, tmp_path, groups, good) == set()
    bad = {
        key: "95x40" if "working_set" in key else "0x40" if key.startswith("up") else values
        for key, values in good.items()
    }
    assert fire(promtool, tmp_path, groups, bad) == {
        "GpuAgentDown",
        "GpustewardAnalyzerDown",
        "GpustewardMemoryNearLimit",
    }
    other = {key.replace(name, f"another-{name}"): values for key, values in bad.items()}
    assert fire(promtool, tmp_path, groups, other | good) == set(), "those of another release are its own"


def test_targets_that_vanish_fire(helm: Helm, promtool: Promtool, tmp_path: Path):
    groups = read_chart_alerts(helm, "gpusteward-prod", MONITORED)
    agent = '{job="gpusteward-prod-agent",instance="10.0.0.1:9400"%s}'
    series = {
        'up{job="gpusteward-prod-analyzer",instance="z"}': "1x10 stale",
        "up" + agent % "": "1x10 stale",
        "gpusteward_snapshot_age_seconds" + agent % ',node="a"': "3x10 stale",
        'kube_node_info{node="a"}': "1x40",
    }
    assert fire(promtool, tmp_path, groups, series) == {"GpuAgentDown", "GpustewardAnalyzerDown"}
    replaced = {
        **series,
        'up{job="gpusteward-prod-analyzer",instance="y"}': "1x40",
        'up{job="gpusteward-prod-agent",instance="10.0.0.2:9400"}': "_x10 1x30",
        'gpusteward_snapshot_age_seconds{job="gpusteward-prod-agent",instance="10.0.0.2:9400",node="a"}': "_x10 3x30",
    }
    assert fire(promtool, tmp_path, groups, replaced) == set(), "another pod has taken their place"
    without_node = {key: "1x10 stale" if key.startswith("kube") else values for key, values in series.items()}
    assert fire(promtool, tmp_path, groups, without_node) == {"GpustewardAnalyzerDown"}, "the node is gone too"


def test_the_analyzer_of_a_release_of_the_same_name_elsewhere_stands_in_for_no_other(
    helm: Helm, promtool: Promtool, tmp_path: Path
):
    groups = read_chart_alerts(helm, "gpusteward", {**MONITORED, "namespaceOverride": "team-a"})
    up = 'up{job="gpusteward-analyzer",namespace="%s",instance="z"}'
    assert fire(promtool, tmp_path, groups, {up % "team-b": "1x40"}) == {"GpustewardAnalyzerDown"}
    assert fire(promtool, tmp_path, groups, {up % "team-b": "1x40", up % "team-a": "1x40"}) == set()


@pytest.mark.parametrize(
    "values",
    [{"serviceMonitor": {"enabled": False}}, {**MONITORED, "analyzer": {"enabled": False}}],
    ids=["not scraped", "not installed"],
)
def test_an_analyzer_that_nobody_scrapes_is_not_missed(values: Json, helm: Helm, promtool: Promtool, tmp_path: Path):
    assert fire(promtool, tmp_path, read_chart_alerts(helm, "gpusteward", values), {"up": "1x40"}) == set()


ROUTES = ROOT / "deploy/examples/alertmanager.yaml"
SENT = {  # the analyzer pushes GpuWorkloadIdle itself
    ("GpuLost", "critical"): "on-call",
    ("GpuThrottled", "warning"): "platform",
    ("GpuXid", "info"): "platform",
    ("GpuWorkloadIdle", "info"): "none",
    ("GpuWorkloadIdleForDays", "info"): "none",
}


def test_the_example_for_alertmanager_routes_as_it_says(component: Callable[[str], str]):
    amtool = component("amtool")
    subprocess.run([amtool, "check-config", ROUTES], check=True, capture_output=True, timeout=30)
    for (alert, severity), receiver in SENT.items():
        labels = [f"alertname={alert}", f"severity={severity}"]
        command = [amtool, "config", "routes", "test", f"--config.file={ROUTES}", *labels]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
        assert done.stdout.split() == [receiver], alert


def test_the_example_for_alertmanager_names_only_alerts_that_exist():
    named = set(re.findall(r"\bGpu\w+", ROUTES.read_text()))
    assert named <= ALERTS.keys() | {"GpuWorkloadIdle", "GpustewardSourceLost"}


VALUES = range(31)  # one sample per minute
WINDOW = list(VALUES)[11:21]
"""The samples of the last ten minutes at minute 20: a window excludes its start."""
EXPECTED = {
    "avg_over_time": statistics.fmean(WINDOW),
    "max_over_time": max(WINDOW),
    "stddev_over_time": statistics.pstdev(WINDOW),
    "count_over_time": len(WINDOW),
    "increase": 10,  # 9 in nine minutes, extrapolated to the window
    "excess": 0,  # every minute has the same increase
    "hour_excess": 0,
    "changes": len(WINDOW) - 1,
}


def test_every_recording_rule_records_its_window_and_nothing_without_samples(promtool: Promtool, tmp_path: Path):
    names = {rule["record"].split(":")[1] for rule in RECORDED}
    series = [{"series": f'{name}{{node="a"}}', "values": "0+1x30"} for name in sorted(names)]
    recorded = [expect_sample(rule["record"]) for rule in RECORDED]
    absent = [{"expr": rule["record"], "eval_time": "20m", "exp_samples": []} for rule in RECORDED]
    tests = [
        {"interval": "1m", "input_series": series, "promql_expr_test": recorded},
        {"interval": "1m", "input_series": [{"series": "other", "values": "0+1x30"}], "promql_expr_test": absent},
    ]
    path = tmp_path / "recording.json"
    document = {"rule_files": [str(RULES / "recording.yaml")], "evaluation_interval": "1m", "tests": tests}
    path.write_text(json.dumps(document))
    done = promtool("test", "rules", path)
    assert done.returncode == 0, (done.stdout + done.stderr)[:2000]


def expect_sample(record: str) -> Json:
    """The rounded value of `gpusteward:METRIC:AGGREGATION_10m` at minute 20."""
    aggregation = record.rpartition(":")[2].removesuffix("_10m")
    value = round(EXPECTED[aggregation], 3)
    sample = {"labels": '{node="a"}', "value": value}
    return {"expr": f"round({record}, 0.001)", "eval_time": "20m", "exp_samples": [sample]}
