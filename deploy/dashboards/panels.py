"""Panels with the settings that all dashboards share: units, thresholds, legends, colors that suit both themes.

Unknown is never 0: gaps stay gaps, and a panel without a sample says "no data".
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grafana_foundation_sdk.builders import (
    barchart,
    bargauge,
    common,
    gauge,
    histogram,
    prometheus,
    stat,
    table,
    timeseries,
)
from grafana_foundation_sdk.builders.dashboard import DashboardLink, FieldColor, ThresholdsConfig
from grafana_foundation_sdk.models import common as models
from grafana_foundation_sdk.models import dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DATASOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
NO_DATA = "no data"
ACTIVITY_COLORS = {"active": "green", "idle": "orange", "unknown": "purple", "unallocated": "blue"}
GOOD_WHEN_HIGH = ((None, "red"), (0.2, "yellow"), (0.5, "green"))
BAD_WHEN_ABOVE_ZERO = ((None, "green"), (0.000001, "orange"))
NEUTRAL = ((None, "blue"),)

Steps = Sequence[tuple[float | None, str]]  # from which value on, color
Panels = Iterator[Any]  # the SDK has no common type of panels


@dataclass(frozen=True)
class Column:
    """A column of a table. `name` is a label, or `Value #A` for the value of query A."""

    name: str
    title: str
    unit: str = ""
    decimals: int | None = None
    links: Mapping[str, str] = field(default_factory=dict)  # title -> URL
    colors: Steps = ()


def query(
    expression: str, legend: str = "", *, ref: str = "A", instant: bool = False, as_table: bool = False
) -> prometheus.Dataquery:
    built = prometheus.Dataquery().expr(expression).ref_id(ref).datasource(DATASOURCE).legend_format(legend or "__auto")
    built = built.instant() if instant or as_table else built.range()
    return built.format(PromQueryFormat.TABLE) if as_table else built


def _begin(panel: Any, title: str, description: str, *, unit: str, size: tuple[int, int], steps: Steps) -> Any:
    width, height = size
    return (
        panel.title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .span(width)
        .height(height)
        .no_value(NO_DATA)
        .thresholds(_thresholds(steps))
    )


def _thresholds(steps: Steps) -> ThresholdsConfig:
    rows = [dashboard.Threshold(value=value, color=color) for value, color in steps]
    return ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(rows)


def number(
    title: str,
    description: str,
    expression: str,
    *,
    unit: str = "short",
    steps: Steps = NEUTRAL,
    legend: str = "",
    decimals: int | None = None,
    instant: bool = False,
    width: int = 4,
) -> stat.Panel:
    """A single number with its course behind it."""
    panel = _begin(stat.Panel(), title, description, unit=unit, size=(width, 4), steps=steps)
    panel = panel.with_target(query(expression, legend, instant=instant))
    panel = panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    mode = models.BigValueGraphMode.NONE if instant else models.BigValueGraphMode.AREA
    panel = panel.graph_mode(mode).color_mode(models.BigValueColorMode.VALUE)
    panel = panel.text_mode(models.BigValueTextMode.VALUE_AND_NAME if legend else models.BigValueTextMode.VALUE)
    return panel if decimals is None else panel.decimals(decimals)


def share(
    title: str, description: str, expression: str, *, steps: Steps = GOOD_WHEN_HIGH, width: int = 4
) -> gauge.Panel:
    """A part of a whole, 0 to 1."""
    panel = _begin(gauge.Panel(), title, description, unit="percentunit", size=(width, 4), steps=steps).min(0).max(1)
    panel = panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    return panel.with_target(query(expression))


def chart(
    title: str,
    description: str,
    queries: Mapping[str, str],
    *,
    unit: str = "short",
    width: int = 12,
    height: int = 8,
    stacked: bool = False,
    low: float | None = 0,
    high: float | None = None,
    steps: Steps = NEUTRAL,
    colors: Mapping[str, str] | None = None,
) -> timeseries.Panel:
    """Lines over time; `queries`: expression -> legend."""
    panel = _begin(timeseries.Panel(), title, description, unit=unit, size=(width, height), steps=steps)
    for ref, (expression, legend) in zip("ABCDEFGH", queries.items(), strict=False):
        panel = panel.with_target(query(expression, legend, ref=ref))
    legend_options = common.VizLegendOptions().display_mode(models.LegendDisplayMode.TABLE).show_legend(True)
    legend_options = legend_options.placement(models.LegendPlacement.BOTTOM).calcs(["lastNotNull", "mean", "max"])
    tooltip = common.VizTooltipOptions().mode(models.TooltipDisplayMode.MULTI).sort(models.SortOrder.DESCENDING)
    panel = panel.legend(legend_options).tooltip(tooltip).line_width(1).show_points(models.VisibilityMode.NEVER)
    panel = panel.fill_opacity(60 if stacked else 8).span_nulls(False)
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(models.StackingMode.NORMAL).group("A"))
    if len(steps) > 1:
        lines = common.GraphThresholdsStyleConfig().mode(models.GraphThresholdsStyleMode.DASHED)
        panel = panel.thresholds_style(lines)
    if low is not None:
        panel = panel.min(low)
    if high is not None:
        panel = panel.max(high)
    for name, color in (colors or {}).items():
        panel = panel.override_by_name(name, [_fixed_color(color)])
    return panel


def _fixed_color(color: str) -> dashboard.DynamicConfigValue:
    chosen = FieldColor().mode(dashboard.FieldColorModeId.FIXED).fixed_color(color).build()
    return dashboard.DynamicConfigValue(id_val="color", value=chosen)


def bars(
    title: str, description: str, expression: str, legend: str, *, unit: str = "short", width: int = 8, height: int = 8
) -> bargauge.Panel:
    """One horizontal bar per series, as of now."""
    panel = _begin(bargauge.Panel(), title, description, unit=unit, size=(width, height), steps=NEUTRAL).min(0)
    panel = panel.with_target(query(expression, legend, instant=True))
    panel = panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    panel = panel.orientation(models.VizOrientation.HORIZONTAL).display_mode(models.BarGaugeDisplayMode.BASIC)
    return panel.show_unfilled(False).color_scheme(FieldColor().mode(dashboard.FieldColorModeId.PALETTE_CLASSIC))


def bars_by_activity(
    title: str, description: str, expression: str, row: str, *, unit: str = "short", width: int = 12, height: int = 9
) -> barchart.Panel:
    """A stacked bar per row, split by activity; the expression has the labels `activity` and `row`."""
    panel = _begin(barchart.Panel(), title, description, unit=unit, size=(width, height), steps=NEUTRAL).min(0)
    panel = panel.with_target(query(expression, as_table=True))
    matrix = {"columnField": "activity", "rowField": row, "valueField": "Value", "emptyValue": "null"}
    panel = panel.with_transformation(dashboard.DataTransformerConfig(id_val="groupingToMatrix", options=matrix))
    panel = panel.x_field(f"{row}\\activity").stacking(models.StackingMode.NORMAL)
    panel = panel.orientation(models.VizOrientation.HORIZONTAL).show_value(models.VisibilityMode.NEVER).fill_opacity(80)
    panel = panel.legend(
        common.VizLegendOptions()
        .display_mode(models.LegendDisplayMode.LIST)
        .placement(models.LegendPlacement.BOTTOM)
        .show_legend(True)
        .calcs([])
    )
    for name, color in ACTIVITY_COLORS.items():
        panel = panel.override_by_name(name, [_fixed_color(color)])
    return panel


def distribution(
    title: str, description: str, expression: str, *, unit: str, bucket: int, width: int = 12, height: int = 8
) -> histogram.Panel:
    """How many series are in each range of values, as of now."""
    panel = _begin(histogram.Panel(), title, description, unit=unit, size=(width, height), steps=NEUTRAL)
    panel = panel.with_target(query(expression, instant=True)).bucket_size(bucket).combine(True).fill_opacity(80)
    return panel.color_scheme(FieldColor().mode(dashboard.FieldColorModeId.FIXED).fixed_color("blue"))


def rows(
    title: str,
    description: str,
    queries: Sequence[str],
    columns: Sequence[Column],
    *,
    sort: str,
    width: int = 24,
    height: int = 10,
) -> table.Panel:
    """A table as of now: the queries are joined by their labels; columns that are not listed are hidden."""
    panel = _begin(table.Panel(), title, description, unit="short", size=(width, height), steps=NEUTRAL)
    for ref, expression in zip("ABCDEFGHIJ", queries, strict=False):
        panel = panel.with_target(query(expression, ref=ref, as_table=True))
    if len(queries) > 1:
        panel = panel.with_transformation(dashboard.DataTransformerConfig(id_val="merge", options={}))
    shown = [each.name for each in columns]
    chosen, order = {"include": {"names": shown}}, {"indexByName": {name: place for place, name in enumerate(shown)}}
    panel = panel.with_transformation(dashboard.DataTransformerConfig(id_val="filterFieldsByName", options=chosen))
    panel = panel.with_transformation(dashboard.DataTransformerConfig(id_val="organize", options=order))
    for column in columns:
        panel = panel.override_by_name(column.name, list(_column_properties(column)))
    title_of_sort = next(each.title for each in columns if each.name == sort)
    panel = panel.sort_by([common.TableSortByFieldState().display_name(title_of_sort).desc(True)])
    return panel.filterable(True).cell_height(models.TableCellHeight.SM)


def _column_properties(column: Column) -> Iterator[dashboard.DynamicConfigValue]:
    yield dashboard.DynamicConfigValue(id_val="displayName", value=column.title)
    if column.unit:
        yield dashboard.DynamicConfigValue(id_val="unit", value=column.unit)
    if column.decimals is not None:
        yield dashboard.DynamicConfigValue(id_val="decimals", value=column.decimals)
    if column.links:
        links = [
            DashboardLink(title).url(url).target_blank("${web_ui}" in url).build()
            for title, url in column.links.items()
        ]
        kept = [{"title": each.title, "url": each.url, "targetBlank": each.target_blank} for each in links]
        yield dashboard.DynamicConfigValue(id_val="links", value=kept)
    if column.colors:
        yield dashboard.DynamicConfigValue(id_val="thresholds", value=_thresholds(column.colors).build())
        yield dashboard.DynamicConfigValue(id_val="custom.cellOptions", value={"type": "color-text"})
