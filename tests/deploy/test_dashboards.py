"""The dashboards: fresh, well-formed, accepted by Grafana's linter; every query returns data on a real Prometheus."""

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.dashboards.frame import TITLES
from deploy.dashboards.generate import FOLDER, render_all
from gpusteward.core.node.gpus import Share
from tests.agent.test_prometheus import DASHBOARD_12239
from tests.conftest import give_up
from tests.deploy.dashboard_sites import Site, agent_site, dcgm_site
from tests.deploy.grafana import Grafana, Json, last_values, list_panels
from tests.deploy.helm import CHART, Helm
from tests.yaml_texts import read_yaml

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DASHBOARDS: dict[str, Json] = {name.removesuffix(".json"): json.loads(text) for name, text in render_all().items()}
PANELS = [(uid, panel["title"], panel) for uid, each in DASHBOARDS.items() for panel in list_panels(each)]
PANEL_IDS = [f"{uid}: {title}" for uid, title, _ in PANELS]
RECOMMENDED_BY_GPU_OOUR = {
    "GPU score distribution": "histogram",
    "Low-utilization GPUs": "table",
    "GPUs by namespace": "barchart",
    "AI analysis success rate": "timeseries",
    "Score trend": "timeseries",
}


def is_of_agent(expression: str) -> bool:
    """Whether a query needs the agent: it reads the agent's own families and nothing of dcgm-exporter instead."""
    return bool(re.search(r"gpusteward_(?!analyzer_)", expression)) and "DCGM_FI" not in expression


def test_the_files_are_fresh():
    kept = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
    assert kept == render_all(), "run `make dashboards`"


def test_every_dashboard_has_its_own_uid_and_title():
    assert {uid: each["title"] for uid, each in DASHBOARDS.items()} == TITLES
    assert all(each["uid"] == uid for uid, each in DASHBOARDS.items())


@pytest.mark.parametrize(("uid", "title", "panel"), PANELS, ids=PANEL_IDS)
def test_every_panel_has_what_a_reader_needs(uid: str, title: str, panel: Json):
    defaults = panel["fieldConfig"]["defaults"]
    assert title
    assert panel["description"].endswith(".")
    assert defaults["unit"]
    assert defaults["noValue"] == "no data", "never 0"
    assert panel["targets"]
    assert defaults.get("custom", {}).get("spanNulls", False) is False, "gaps stay gaps"
    assert panel["datasource"]["uid"] == "${datasource}"


@pytest.mark.parametrize("uid", DASHBOARDS)
def test_ids_are_unique_and_nothing_overlaps(uid: str):
    panels = DASHBOARDS[uid]["panels"]
    assert max(Counter(panel["id"] for panel in panels).values()) == 1
    assert max(Counter(panel["title"] for panel in panels if panel["type"] != "row").values()) == 1
    cells: Counter[tuple[int, int]] = Counter()
    for panel in panels:
        box = panel["gridPos"]
        assert box.get("x", 0) + box["w"] <= 24
        cells.update(
            (x, y)
            for x in range(box.get("x", 0), box.get("x", 0) + box["w"])
            for y in range(box["y"], box["y"] + box["h"])
        )
    assert max(cells.values()) == 1
    full = Counter(y for _, y in cells)
    assert set(full.values()) == {24}, "no holes"


@pytest.mark.parametrize("uid", DASHBOARDS)
def test_links_lead_to_all_other_dashboards_and_the_web_ui_with_variables_and_time(uid: str):
    links = DASHBOARDS[uid]["links"]
    inside = {link["url"].removeprefix("/d/"): link for link in links if link["url"].startswith("/d/")}
    assert set(inside) == set(DASHBOARDS) - {uid}
    assert all(link["includeVars"] and link["keepTime"] and not link["targetBlank"] for link in inside.values())
    assert [link["url"] for link in links if link["url"] not in {f"/d/{other}" for other in inside}] == [
        "${web_ui}/ui/"
    ]


def test_links_of_cells_name_dashboards_variables_and_columns_that_exist():
    found = 0
    for _, _, panel in PANELS:
        columns = {override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]}
        for url in re.findall(r'"url": "([^"]+)"', json.dumps(panel)):
            if not url.startswith("/d/"):
                continue
            found += 1
            target = DASHBOARDS[url.removeprefix("/d/").partition("?")[0]]
            names = {variable["name"] for variable in target["templating"]["list"]}
            assert set(re.findall(r"var-(\w+)=", url)) <= names
            assert set(re.findall(r"__data\.fields\.(\w+)", url)) <= columns
            assert "${__url_time_range}" in url
    assert found > 5


def test_the_variables_that_users_expect_exist():
    names = {each["name"] for dashboard in DASHBOARDS.values() for each in dashboard["templating"]["list"]}
    assert names == {"datasource", "cluster", "node", "namespace", "workload", "pod", "gpu", "web_ui"}


def test_the_five_panels_that_gpu_oour_recommends_exist():
    kinds = {title: panel["type"] for _, title, panel in PANELS}
    assert {title: kinds.get(title) for title in RECOMMENDED_BY_GPU_OOUR} == RECOMMENDED_BY_GPU_OOUR


def test_no_panel_type_is_deprecated():
    kinds = {panel["type"] for _, _, panel in PANELS}
    assert kinds <= {"stat", "gauge", "timeseries", "table", "bargauge", "barchart", "histogram"}


def test_the_chart_carries_the_dashboards_with_the_address_of_the_web_ui(helm: Helm):
    objects = helm.template(
        CHART, {"dashboards": {"webUiUrl": "https://gpus.example.com/"}}, "--show-only", "templates/dashboards.yaml"
    )
    carried = {name.removesuffix(".json"): json.loads(text) for each in objects for name, text in each["data"].items()}
    assert carried.keys() == DASHBOARDS.keys()
    for uid, dashboard in carried.items():
        (address,) = [each for each in dashboard["templating"]["list"] if each["name"] == "web_ui"]
        assert {address["query"], address["current"]["value"]} == {"https://gpus.example.com"}
        assert dashboard["panels"] == DASHBOARDS[uid]["panels"]


@pytest.fixture(scope="module")
def linter() -> Path:
    folder = subprocess.run([ROOT / ".ci/dashboard-linter", "path"], capture_output=True, text=True, check=True).stdout
    program = Path(folder.strip()) / "dashboard-linter"
    if not program.exists():
        give_up("dashboard-linter is not built; `make components` builds it")
    return program


def lint(program: Path, path: Path) -> subprocess.CompletedProcess[str]:
    command = [program, "lint", "--strict", "--config", ROOT / "deploy/dashboards/lint.yaml", path]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("uid", DASHBOARDS)
def test_the_linter_of_grafana_accepts_every_dashboard(linter: Path, uid: str):
    done = lint(linter, FOLDER / f"{uid}.json")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_linter_refuses_a_panel_without_unit_and_an_invalid_query(linter: Path, tmp_path: Path):
    broken = json.loads(json.dumps(DASHBOARDS["gpusteward-node"]))
    chart = next(panel for panel in broken["panels"] if panel["type"] == "timeseries")
    chart["fieldConfig"]["defaults"]["unit"] = ""
    chart["targets"][0]["expr"] = "sum(("
    (tmp_path / "broken.json").write_text(json.dumps(broken))
    done = lint(linter, tmp_path / "broken.json")
    assert done.returncode != 0
    assert "has no or invalid units defined" in done.stdout
    assert "invalid PromQL query" in done.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with agent_site(tmp_path_factory.mktemp("agent-site")) as running:
        yield running


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with dcgm_site(tmp_path_factory.mktemp("dcgm-site")) as running:
        yield running


def open_dashboard(site: Site, uid: str) -> Grafana:
    return Grafana(site.url, DASHBOARDS[uid], site.at)


def find_gaps(site: Site, uid: str, *, without_agent: bool = False) -> dict[str, list[str]]:
    """Panel -> its queries without data. Where one namespace is shown, without data in any namespace."""
    grafana = open_dashboard(site, uid)
    variables = {each["name"]: each for each in DASHBOARDS[uid]["templating"]["list"]}
    is_single = not variables.get("namespace", {}).get("includeAll", True)
    choices = [{"namespace": [name]} for name in grafana.variables["namespace"]] if is_single else [{}]
    gaps: dict[str, set[str]] = {}
    for number, choice in enumerate(choices):
        grafana.choose(**choice)
        for panel in list_panels(DASHBOARDS[uid]):
            results = zip(panel["targets"], grafana.run(panel), strict=True)
            empty = {target["expr"] for target, (_, series) in results if not any(v == v for v in last_values(series))}
            gaps[panel["title"]] = empty if not number else gaps[panel["title"]] & empty
    return {
        title: kept
        for title, found in gaps.items()
        if (kept := [each for each in found if not (without_agent and is_of_agent(each))])
    }


@pytest.mark.parametrize("uid", DASHBOARDS)
def test_every_query_of_every_panel_returns_data(site: Site, uid: str):
    assert find_gaps(site, uid) == {}


@pytest.mark.parametrize("uid", DASHBOARDS)
def test_with_dcgm_exporter_alone_every_query_returns_data_that_does_not_need_the_agent(plain: Site, uid: str):
    assert find_gaps(plain, uid, without_agent=True) == {}


@pytest.mark.parametrize("uid", DASHBOARDS)
def test_every_variable_has_options_and_any_choice_of_them_is_a_valid_query(site: Site, uid: str):
    grafana = open_dashboard(site, uid)
    assert all(grafana.variables.values()), grafana.variables
    for take in (slice(1), slice(2)):
        grafana.choose(**{name: options[take] for name, options in grafana.variables.items() if name != "pod"})
        for panel in list_panels(DASHBOARDS[uid]):
            list(grafana.run(panel))  # an error of Prometheus fails the test


def read_number(site: Site, uid: str, title: str, **chosen: list[str]) -> float:
    """The sum of what a panel shows now."""
    grafana = open_dashboard(site, uid)
    grafana.choose(**chosen)
    (panel,) = [each for each in list_panels(DASHBOARDS[uid]) if each["title"] == title]
    return sum(last_values(next(grafana.run(panel))[1]))


@pytest.mark.parametrize("name", ["site", "plain"])
def test_the_numbers_are_those_of_the_simulated_nodes_and_of_the_analyzer(name: str, request: pytest.FixtureRequest):
    site: Site = request.getfixturevalue(name)
    result = site.result
    truth = {
        ("gpusteward-cluster", "GPUs"): site.gpus,
        ("gpusteward-cluster", "GPUs by model"): site.gpus,
        ("gpusteward-cluster", "GPUs by activity"): site.gpus,
        ("gpusteward-node", "GPUs"): site.gpus,
        ("gpusteward-node", "All GPUs"): site.gpus,
        ("gpusteward-cluster", "Idle GPUs"): result["idle_gpus"],
        ("gpusteward-cluster", "Unknown GPUs"): result["unknown_gpus"],
        ("gpusteward-tenants", "Idle GPUs"): result["idle_gpus"],
        ("gpusteward-idle", "Idle GPUs"): result["idle_gpus"],
        ("gpusteward-idle", "Idle workloads"): len(site.workloads),
        ("gpusteward-idle", "Idle cost per hour"): result["idle_cost_micros_per_hour"] / 1e6,
        ("gpusteward-tenants", "Idle cost per hour"): result["idle_cost_micros_per_hour"] / 1e6,
    }
    shown = {panel: read_number(site, *panel) for panel in truth}
    assert shown == pytest.approx(truth, abs=1e-4)
    held = result["active_gpus"] + result["idle_gpus"] + result["unknown_gpus"]
    assert read_number(site, "gpusteward-tenants", "GPUs held") == pytest.approx(held, abs=1e-4)
    effective = read_number(site, "gpusteward-cluster", "Effective share") * site.gpus
    ineffective = read_number(site, "gpusteward-cluster", "Ineffective GPUs")
    assert effective + ineffective == pytest.approx(result["active_gpus"], abs=1e-4)
    assert effective > 0


@pytest.mark.parametrize("name", ["site", "plain"])
def test_a_chosen_node_shows_its_own_gpus_only(name: str, request: pytest.FixtureRequest):
    site: Site = request.getfixturevalue(name)
    for node in site.nodes:
        count = len([each for each in node.snapshot(site.at).readings if each.gpu.mig is None])
        assert read_number(site, "gpusteward-node", "GPUs", node=[node.name]) == count
        assert read_number(site, "gpusteward-node", "GPUs", node=[node.name], gpu=["0"]) == 1


@pytest.mark.parametrize("name", ["site", "plain"])
def test_the_pod_of_the_exporter_is_not_a_holder(name: str, request: pytest.FixtureRequest):
    site: Site = request.getfixturevalue(name)
    grafana = open_dashboard(site, "gpusteward-workload")
    truth = {each.container.namespace for node in site.nodes for each in node.snapshot(site.at).allocations}
    assert set(grafana.variables["namespace"]) <= truth
    for namespace in grafana.variables["namespace"]:
        grafana.choose(namespace=[namespace])
        pods = {
            each.container.pod
            for node in site.nodes
            for each in node.snapshot(site.at).allocations
            if each.container.namespace == namespace
        }
        assert grafana.variables["pod"]
        assert set(grafana.variables["pod"]) <= pods


def test_use_of_a_shared_gpu_is_that_of_each_pod(site: Site):
    snapshots = [node.snapshot(site.at) for node in site.nodes]
    sliced = {one.container: each for each in snapshots for one in each.allocations if one.share == Share.TIME_SLICED}
    assert len(sliced) > 2
    for container, snapshot in sliced.items():
        own = [one.memory_bytes or 0 for one in snapshot.processes if one.pod_uid == container.pod_uid]
        shown = read_number(
            site, "gpusteward-workload", "Memory used by pod", namespace=[container.namespace], pod=[container.pod]
        )
        assert shown == sum(own)


@pytest.mark.parametrize("expression", DASHBOARD_12239)
def test_nvidias_dashboard_with_the_tensor_core_panel_shows_data(site: Site, expression: str):
    values = last_values(open_dashboard(site, "gpusteward-node").query(expression.replace('gpu=~"0"', 'gpu=~".*"')))
    assert values
    assert max(values) > 0


def test_the_provisioning_files_name_the_data_source_type_and_the_folder_of_the_dashboards():
    files = {path.stem: read_yaml(path.read_text()) for path in (ROOT / "deploy/grafana").glob("*.yaml")}
    (source,) = files["datasource"]["datasources"]
    (provider,) = files["dashboards"]["providers"]
    assert source["type"] == DASHBOARDS["gpusteward-node"]["templating"]["list"][0]["query"]
    assert (provider["type"], provider["options"]["path"]) == ("file", "/var/lib/grafana/dashboards/gpusteward")
    assert provider["options"]["path"] in (ROOT / "docs/how-to/grafana.md").read_text()
