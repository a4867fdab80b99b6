"""What surrounds the panels: the dashboard itself, its variables, and links to the other dashboards and the web UI."""

from collections.abc import Sequence
from typing import Any

from grafana_foundation_sdk.builders.dashboard import (
    Dashboard,
    DashboardLink,
    DatasourceVariable,
    QueryVariable,
    Row,
    TextBoxVariable,
)
from grafana_foundation_sdk.models import dashboard

from deploy.dashboards.panels import DATASOURCE
from deploy.dashboards.promql import CLUSTER, device, held, name_node

TITLES = {
    "gpusteward-cluster": "GPU clusters",
    "gpusteward-tenants": "GPU tenants and cost",
    "gpusteward-workload": "GPU workload",
    "gpusteward-node": "GPU nodes and GPUs",
    "gpusteward-idle": "Idle GPUs",
    "gpusteward-health": "gpusteward health",
}
"""uid -> title of every dashboard."""
WEB_UI = "http://localhost:8080"
"""Address of the analyzer in `make demo` and in compose.yaml; the chart sets its own."""

ALLOCATIONS = "gpusteward_allocation_info"
_ALL = dashboard.VariableOption(text="All", value="$__all", selected=True)


def begin(uid: str, description: str, variables: Sequence[Any], *, since: str = "now-6h") -> Dashboard:
    """A dashboard without panels."""
    built = (
        Dashboard(TITLES[uid])
        .uid(uid)
        .description(description)
        .tags(["gpu", "gpusteward"])
        .readonly()
        .timezone("browser")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .time(since, "now")
        .refresh("1m")
        .with_variable(_datasource())
    )
    for variable in variables:
        built = built.with_variable(variable)
    built = built.with_variable(_web_ui())
    for other, title in TITLES.items():
        if other != uid:
            built = built.link(_link(title, f"/d/{other}"))
    return built.link(_link("Web UI", "${web_ui}/ui/", is_outside=True))


def add(built: Dashboard, row: str, *panels: Any) -> Dashboard:
    """A row of panels."""
    built = built.with_row(Row(row))
    for panel in panels:
        built = built.with_panel(panel)
    return built


def link_to(uid: str, **variables: str) -> str:
    """The address of a dashboard with these variables; cluster and time range are kept."""
    given = "".join(f"&var-{name}={value}" for name, value in variables.items())
    return f"/d/{uid}?${{__url_time_range}}&${{datasource:queryparam}}&${{cluster:queryparam}}{given}"


def _link(title: str, url: str, *, is_outside: bool = False) -> DashboardLink:
    link = (
        DashboardLink(title)
        .type(dashboard.DashboardLinkType.LINK)
        .url(url)
        .icon("external link" if is_outside else "dashboard")
    )
    return link.target_blank(is_outside).keep_time(not is_outside).include_vars(not is_outside)


def _datasource() -> DatasourceVariable:
    return DatasourceVariable("datasource").label("Data source").type("prometheus")


def _web_ui() -> TextBoxVariable:
    address = dashboard.VariableOption(text=WEB_UI, value=WEB_UI, selected=True)
    described = (
        TextBoxVariable("web_ui").label("Web UI").description("Address of the analyzer, for links to its web UI.")
    )
    return described.default_value(WEB_UI).current(address).options([address])


def _query(
    name: str, label: str, query: str, *, regex: str = "", is_multi: bool = True, all_value: str = ".*"
) -> QueryVariable:
    variable = QueryVariable(name).label(label).datasource(DATASOURCE).query({"query": query, "refId": name})
    variable = variable.definition(query).regex(regex).sort(dashboard.VariableSort.ALPHABETICAL_ASC)
    variable = variable.refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED).multi(is_multi).include_all(is_multi)
    if is_multi:
        variable = variable.current(_ALL)
    return variable.all_value(all_value) if all_value and is_multi else variable


def _values(expression: str, label: str) -> str:
    return f"query_result(group by ({label}) ({expression}))"


def cluster() -> QueryVariable:
    query = (
        'label_values({__name__=~"gpusteward_analyzer_gpus|DCGM_FI_DEV_FB_USED|DCGM_FI_DEV_FB_USED_BYTES"}, cluster)'
    )
    return _query("cluster", "Cluster", query)


def node() -> QueryVariable:
    query = _values(name_node(device("memory_used_bytes", CLUSTER)), "node")
    return _query("node", "Node", query, regex='/node="([^"]+)"/')


def gpu() -> QueryVariable:
    selector = f'{CLUSTER}, Hostname=~"$node|", hostname=~"$node|"'
    return _query("gpu", "GPU", _values(device("memory_used_bytes", selector), "gpu"), regex='/gpu="([^"]+)"/')


def namespace() -> QueryVariable:
    """Of the analyzer."""
    return _query("namespace", "Namespace", f"label_values(gpusteward_analyzer_namespace_gpus{{{CLUSTER}}}, namespace)")


def holder_namespace() -> QueryVariable:
    """Of the exporters: one at a time."""
    any_pod = f'{CLUSTER}, namespace=~".+", pod=~".+"'
    expression = f"{ALLOCATIONS}{{{CLUSTER}}} or {held('memory_used_bytes', any_pod)}"
    return _query(
        "namespace", "Namespace", _values(expression, "namespace"), regex='/namespace="([^"]+)"/', is_multi=False
    )


def workload() -> QueryVariable:
    query = f'label_values({ALLOCATIONS}{{{CLUSTER}, namespace=~"$namespace"}}, workload)'
    return _query("workload", "Workload", query)


def pod() -> QueryVariable:
    """All means all pods of the workload: queries filter by pod only."""
    own = f'{ALLOCATIONS}{{{CLUSTER}, namespace=~"$namespace", workload=~"$workload"}}'
    any_own = f'{ALLOCATIONS}{{{CLUSTER}, namespace=~"$namespace"}}'
    other = held("memory_used_bytes", f'{CLUSTER}, namespace=~"$namespace", pod=~".+"')
    expression = f"{own} or ({other} unless on (namespace, pod) {any_own})"
    return _query("pod", "Pod", _values(expression, "pod"), regex='/pod="([^"]+)"/', all_value="")
