"""Reports as CSV, JSON and HTML: names are never formulas, markup or addresses to load."""

import csv
import io
import json
import re
import string
import subprocess
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gpusteward.analyzer.ledger.database.periods import DAY_MS, HOUR_MS
from gpusteward.analyzer.reports.render import quantities
from gpusteward.analyzer.reports.render.csv_text import COLUMNS, render_csv
from gpusteward.analyzer.reports.render.descriptions import describe_recorded, list_notes, list_waste
from gpusteward.analyzer.reports.render.html_page import render_html
from gpusteward.analyzer.reports.render.json_text import read_report, render_json
from gpusteward.analyzer.reports.report import Group, Report
from gpusteward.core.messages import LANGUAGES, Language
from tests.analyzer.reports.example_reports import CHINESE, FORMULA, HOSTILE, example_report, make_amounts

REPORT = example_report()
EMPTY = replace(
    REPORT, groups=[], points=[], wasters=[], findings=[], trend=None, unused=None, total=make_amounts(active=0)
)


class Page(HTMLParser):
    """The tags and the text of a page, and everything it would load or run."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        loading = ("src", "href", "style", "action", "data")
        self.loads += [f"{tag} {name}" for name, _ in attrs if name in loading or name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.text += data


def read_csv(report: Report) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(render_csv(report))))


def test_csv_has_one_row_per_group_and_the_total_with_exact_numbers():
    rows = read_csv(REPORT)
    assert [row["row"] for row in rows] == ["group", "group", "group", "total"]
    assert list(rows[0]) == list(COLUMNS)
    total = rows[-1]
    assert (total["allocated_gpu_ms"], total["idle_cost"]) == (str(300 * HOUR_MS), "260.000000")
    assert (total["electricity"], total["unallocated_gpu_hours"]) == ("1.234567", "36.0")
    assert (total["effective_gpu_hours"], total["ineffective_gpu_hours"]) == ("140.0", "25.0")
    assert (total["effective_gpu_ms"], total["ineffective_gpu_ms"]) == (str(140 * HOUR_MS), str(25 * HOUR_MS))
    assert (total["effective_cost"], total["ineffective_cost"]) == ("280.000000", "50.000000")
    assert rows[0]["unallocated_gpu_ms"] == ""  # unknown is empty, not 0


@pytest.mark.parametrize("start", ["=1+1", "+1", "-1", "@SUM(A1)", " =1", "\t=1", "\r=1", "\x00=1", "＝1"])
def test_no_cell_of_a_csv_is_a_formula(start: str):
    report = replace(REPORT, groups=[Group(start, "=kind", "@namespace", make_amounts(idle=1), None)])
    row = read_csv(report)[0]
    for cell in (row["name"], row["kind"], row["namespace"]):
        assert cell.startswith("'")


def test_a_csv_contains_no_control_characters():
    report = replace(REPORT, groups=[Group("a\x1b[2Jb\u202e", "", "", make_amounts(idle=1), None)])
    assert read_csv(report)[0]["name"] == "a\ufffd[2Jb\ufffd"


def test_a_negative_change_stays_a_number():
    assert read_csv(REPORT)[1]["idle_change_ratio"] == "-0.125"


def test_json_can_be_read_back():
    again = read_report(json.loads(render_json(REPORT)))
    assert render_json(again) == render_json(REPORT)
    assert again.total == REPORT.total


def test_json_of_a_newer_analyzer_can_be_read():
    value = json.loads(render_json(REPORT))
    value["something_new"] = {"of": "tomorrow"}
    value["total"]["another"] = 1
    assert read_report(value).total == REPORT.total
    with pytest.raises(ValueError, match="total"):
        read_report({**value, "total": "nonsense"})


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_page_loads_and_runs_nothing(language: Language):
    html = render_html(REPORT, language)
    page = Page(html)
    assert page.loads == []
    assert not {"script", "iframe", "object", "embed", "link", "img", "form", "base"} & set(page.tags)
    assert not re.search(r"url\(|@import|https?:", html)
    assert "default-src 'none'" in html.replace("&#x27;", "'")


def test_a_page_shows_names_as_text():
    page = Page(render_html(REPORT))
    assert HOSTILE in page.text
    assert FORMULA in page.text
    assert CHINESE in page.text
    assert "script" not in page.tags


@pytest.mark.parametrize(
    ("language", "words"),
    [
        (
            "en",
            [
                "26 of 64 GPUs unused",
                "Most wasteful workloads",
                "Right-sizing",
                "MIG 1g.10gb",
                "1/4 share",
                "+30% vs. previous period",
            ],
        ),
        ("zh", ["64 张 GPU 中有 26 张未使用", "浪费最多的工作负载", "规格建议", "共享 1/4", "较上期 +30%"]),
        ("en", ["Effective, at most", "140", "280.00", "Ineffective", "It is an upper bound"]),
        ("zh", ["有效（上限）", "无效", "它是上限"]),
    ],
)
def test_a_page_is_in_the_requested_language(language: Language, words: list[str]):
    text = Page(render_html(REPORT, language)).text
    for word in words:
        assert word in text


def test_a_chinese_page_has_no_english_titles():
    text = Page(render_html(REPORT, "zh")).text
    for word in ("Allocated", "Idle", "Effective", "Ineffective", "Workload", "Total", "Covers", "Notes"):
        assert word not in text


def test_charts_are_well_formed_and_a_missing_day_is_a_gap():
    html = render_html(REPORT)
    drawings = [ElementTree.fromstring(each) for each in re.findall(r"(?s)<svg.*?</svg>", html)]
    chart = max(drawings, key=lambda each: len(list(each.iter())))
    bars = list(chart.iter("g"))
    assert len(bars) == 3  # of four days
    left = [float(next(bar.iter("rect")).get("x", "0")) for bar in bars]
    assert left[2] - left[1] == pytest.approx(2 * (left[1] - left[0]), abs=0.2)


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_empty_report_says_that_there_are_no_records(language: Language):
    text = Page(render_html(EMPTY, language)).text
    assert ("no records for this period" if language == "en" else "没有记录") in text
    assert len(read_csv(EMPTY)) == 1


@pytest.mark.parametrize(
    ("behind_ms", "later_ms", "language", "text"),
    [
        (0, 0, "en", "as of 00:00:00 UTC"),
        (60_000, -60_000, "en", "as of 23:59:00 UTC"),
        (60_000, DAY_MS, "zh", "截至 2025-11-18 23:59:00（UTC）"),
        (2 * HOUR_MS, 0, "en", "recorded until 2025-11-18 22:00:00 UTC: no later cycle"),
        (2 * HOUR_MS, -1, "zh", "记录截至 22:00:00（UTC）：账本中没有更晚的分析周期"),
    ],
)
def test_a_report_says_until_when_it_is_recorded(behind_ms: int, later_ms: int, language: Language, text: str):
    covered = replace(REPORT.range, last_ms=REPORT.range.until_ms - behind_ms)
    report = replace(REPORT, range=covered, made_ms=REPORT.range.until_ms + later_ms)
    assert describe_recorded(report, language).startswith(text)
    assert text in Page(render_html(report, language)).text
    assert describe_recorded(replace(report, range=replace(covered, last_ms=None)), language) == ""


def test_notes_describe_what_the_numbers_cover():
    covered = replace(
        REPORT.range, is_widened=True, first_ms=REPORT.range.since_ms + HOUR_MS, last_ms=1_763_000_000_000
    )
    total = replace(REPORT.total, unpriced_gpu_ms=HOUR_MS, unallocated_gpu_ms=None)
    notes = " ".join(list_notes(replace(REPORT, range=covered, total=total), "en"))
    for word in ("records whole hours", "widened", "begins at", "1.0 GPU-hours have no price", "67% of"):
        assert word in notes
    assert "no source reports the number of GPUs" in notes


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (quantities.hours(None), "–"),
        (quantities.hours(0), "0"),
        (quantities.hours(1000), "<0.1"),
        (quantities.hours(1_234_567 * HOUR_MS), "1,234,567"),
        (quantities.money(None), "–"),
        (quantities.money(1_500_000, "EUR"), "EUR 1.50"),
        (quantities.percent(0.001), "<1%"),
        (quantities.change(0.001), "±0%"),
        (quantities.change(-0.25), "−25%"),
        (quantities.change(1e9), ">+999%"),
    ],
)
def test_small_amounts_are_never_shown_as_zero(shown: str, text: str):
    assert shown == text


def test_a_browser_renders_the_page_without_errors(tmp_path: Path, component: Callable[[str], str]):
    browser = component("chromium")
    page = tmp_path / "report.html"
    page.write_text(render_html(REPORT, "zh"), encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--virtual-time-budget=1000"]
    done = subprocess.run(
        [browser, *flags, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "浪费最多的工作负载" in done.stdout
    assert "CONSOLE" not in done.stderr


def test_a_page_escapes_less_than():
    report = example_report()
    little = replace(report.wasters[0], amounts=make_amounts(active=1000, idle=1, idle_cost_micros=1))
    page = render_html(replace(report, wasters=[little]))
    assert "<1%" not in page
    assert "<0.01" not in page
    assert "&lt;1%" in page


def test_a_page_begins_with_what_was_wasted_and_by_whom():
    head = Page(render_html(REPORT)).text.partition("Idle cost")[0]
    assert "Wasted: 260.00 USD, 130.0 idle GPU-hours (43% of allocated time)" in head
    assert f"Most wasted by: {HOSTILE} (180.00 USD), {CHINESE} (80.00 USD)" in head
    assert "Unallocated: 72.00 USD, 36.0 GPU-hours" in head
    assert head.index("Wasted") < head.index("2025-11-12 00:00 – 2025-11-19 00:00 UTC (now)")


def test_nothing_wasted_is_said():
    report = replace(REPORT, total=make_amounts(active=10), groups=[], wasters=[])
    assert list_waste(report, "en") == ["Wasted: nothing, no allocated GPU was idle."]
    assert list_waste(report, "zh") == ["浪费：无，已分配的 GPU 均未空闲。"]


@pytest.mark.parametrize(
    ("idle", "change", "kind"),
    [(90, 0.25, "worse"), (90, -0.25, "better"), (90, 0.09, ""), (1, 0.25, ""), (0, -1.0, "better"), (90, 0.004, "")],
)
def test_only_a_notable_change_is_coloured(idle: int, change: float, kind: str):
    group = Group("one", "", "", make_amounts(active=10, idle=idle), change)
    html = render_html(replace(REPORT, groups=[group], trend=None))
    assert (f'<td class="{kind}">' if kind else f"<td>{quantities.change(change)}</td>") in html
    assert ("worse" in html.partition("</style>")[2]) is (kind == "worse")


def test_partial_days_are_marked_in_every_format():
    points = [replace(point, is_partial=number == 2) for number, point in enumerate(REPORT.points)]
    day = Group("2025-11-19", "", "", make_amounts(idle=1), None, is_partial=True)
    report = replace(REPORT, by="day", groups=[replace(day, name="2025-11-18", is_partial=False), day], points=points)
    html = render_html(report)
    assert "2025-11-19 *" in html
    assert "2025-11-18 *" not in html
    assert html.count('<g class="partial">') == 1
    assert "11-15 *</text>" in html
    assert "Recorded only in part" in html
    assert [row["is_partial"] for row in read_csv(report)] == ["false", "true", "false"]
    assert [each["is_partial"] for each in json.loads(render_json(report))["groups"]] == [False, True]


def test_a_group_without_a_team_is_called_that():
    report = replace(REPORT, by="team", groups=[Group("", "", "", make_amounts(idle=1), None)])
    assert "(no team)" in Page(render_html(report)).text
    assert "（无团队）" in Page(render_html(report, "zh")).text


def test_csv_has_the_cost_of_unallocated_time():
    assert read_csv(REPORT)[-1]["unallocated_cost"] == "72.000000"
    assert read_csv(REPORT)[0]["unallocated_cost"] == ""


def test_a_page_shows_control_and_bidirectional_characters_as_escapes():
    report = example_report()
    name = "a\u202egnp.exe\u2066\x1b[2J\x7f\u200b\U000e0041"
    page = render_html(replace(report, groups=[replace(report.groups[0], name=name)]))
    assert not set(name) & set(page) - set(string.printable)
    assert "\x1b" not in page
    assert "a\\u202egnp.exe\\u2066\\u001b[2J\\u007f\\u200b" in page
