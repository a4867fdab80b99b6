"""Tables, colours and widths on a terminal and in a pipe."""

import io
import json
import os
import pty
import select
import subprocess
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusteward.cli.flags import read_duration
from gpusteward.cli.json_access import Row
from gpusteward.cli.main import main
from gpusteward.cli.output import quantities
from gpusteward.cli.output.tables import Column, write_rows
from gpusteward.cli.output.terminal_text import clean, cut, cut_middle, escape_controls, fit, measure, wrap
from gpusteward.cli.top.columns import CLUSTER, NODE, choose_columns, divide_width, fit_holders, fit_workload
from gpusteward.cli.top.detail import draw_sparkline
from gpusteward.core.messages import Message
from tests.analyzer.api.server import Api

COMMAND = (sys.executable, "-m", "gpusteward.cli.main")


def at_terminal(*arguments: str, env: Mapping[str, str] | None = None) -> str:
    """The output of a command whose standard output is a terminal."""
    master, slave = pty.openpty()
    environ = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **(env or {})}
    process = subprocess.Popen([*COMMAND, *arguments], stdin=slave, stdout=slave, stderr=slave, env=environ)
    os.close(slave)
    seen, deadline = b"", time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([master], [], [], 0.1)[0]:
            try:
                seen += os.read(master, 65536)
            except OSError:  # it has exited
                break
    process.wait(10)
    os.close(master)
    return seen.decode()


def test_a_terminal_gets_colours_and_a_pipe_gets_none(analyzer: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert "\x1b[33midle" in at_terminal("idle", "--server", analyzer.url)
    assert "\x1b[33m空闲" in at_terminal("idle", "--server", analyzer.url, "--language", "zh")
    assert main(["idle", "--server", analyzer.url]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_no_color_is_honoured(analyzer: Api) -> None:
    for command in (["idle"], ["explain", "trainer"]):
        printed = at_terminal(*command, "--server", analyzer.url, env={"NO_COLOR": "1"})
        assert "\x1b[3" not in printed
        assert "trainer" in printed


def test_explain_is_coloured_at_a_terminal(analyzer: Api) -> None:
    assert "\x1b[32mactive, steady" in at_terminal("explain", "trainer", "--server", analyzer.url)


def test_without_rich_the_table_is_plain(analyzer: Api) -> None:
    program = (
        "import sys, importlib.util\n"
        "class Blocker:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'rich': raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Blocker())\n"
        "from gpusteward.cli.main import main\n"
        f"sys.exit(main(['idle', '--server', '{analyzer.url}']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "Job/trainer" in done.stdout


def test_a_closed_pipe_is_not_an_error(analyzer: Api) -> None:
    script = f"{' '.join(COMMAND)} explain trainer --server {analyzer.url} | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines()[0] == "vision/Job/trainer"
    assert done.stdout.splitlines()[1] in ("0", "141")
    assert done.stderr == ""


def test_commands_load_neither_the_analyzer_nor_textual() -> None:
    program = (
        "import sys; from gpusteward.cli.main import main\n"
        "main(['idle', '--server', '127.0.0.1:1']); main(['ps', '--agent', '127.0.0.1:1'])\n"
        "heavy = {'textual', 'rich', 'numpy', 'pydantic', 'fastapi', 'sqlalchemy', 'msgspec'} & set(sys.modules)\n"
        "heavy |= {name for name in sys.modules if name.startswith(('gpusteward.analyzer', 'gpusteward.agent'))}\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@given(st.text())
def test_cleaned_text_is_one_line_without_control_characters(text: str) -> None:
    cleaned = clean(text)
    assert "\n" not in cleaned
    assert "\x1b" not in cleaned
    assert "\u202e" not in cleaned
    cleaned.encode()


@given(st.text(), st.integers(1, 60))
def test_fitted_text_has_exactly_its_width(text: str, width: int) -> None:
    assert measure(fit(clean(text), width)) == width
    assert measure(cut(clean(text), width)) <= width


@given(st.text(alphabet="ab 中文，", max_size=80), st.integers(2, 40))
def test_wrapped_text_fits_and_loses_no_word(text: str, width: int) -> None:
    lines = list(wrap(text, width))
    assert all(measure(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


@given(st.dictionaries(st.text(), st.text() | st.floats(allow_nan=False) | st.none(), max_size=5))
def test_escaped_json_has_the_same_value(value: dict[str, object]) -> None:
    written = escape_controls(json.dumps(value, ensure_ascii=False))
    assert json.loads(written) == value
    assert "\x9b" not in written


def test_chinese_and_latin_text_is_aligned() -> None:
    out = io.StringIO()
    columns = [Column("a", Message("name", "名称")), Column("b", Message("count", "数量"), to_right=True)]
    rows = [{"a": "训练任务", "b": 1}, {"a": "job", "b": None}]
    write_rows(rows, columns, keys=("a", "b"), output="table", language="zh", out=out)
    assert out.getvalue() == "名称      数量\n训练任务     1\njob          -\n"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"),
        (0, "0s"),
        (59, "59s"),
        (60, "1m"),
        (299, "4m 59s"),
        (601, "10m"),
        (3599, "1h"),
        (3600, "1h"),
        (90_000, "1d 1h"),
        (-5, "0s"),
    ],
)
def test_a_duration_has_at_most_two_units(seconds: float | None, shown: str) -> None:
    assert quantities.duration(seconds) == shown


@pytest.mark.parametrize(("ratio", "shown"), [(None, "-"), (0.0, "0%"), (0.001, "<1%"), (0.5, "50%"), (1.0, "100%")])
def test_zero_unknown_and_small_ratios_differ(ratio: float | None, shown: str) -> None:
    assert quantities.percent(ratio) == shown


@pytest.mark.parametrize("text", ["", "7", "d7", "7 days", "-1h", "1y"])
def test_a_duration_flag_needs_a_unit(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="write 90s, 30m, 2h, 7d or 1w"):
        read_duration(text)


def test_a_gap_in_the_data_is_blank() -> None:
    points = [(at, 1.0) for at in (0, 1, 2, 3, 8, 9, 10)]
    assert draw_sparkline(points, start=0, end=10, width=10) == "████    ██"


def test_zero_is_a_low_block_and_unknown_is_blank() -> None:
    points = [(float(at), at % 2 / 1.0) for at in range(4)]
    assert draw_sparkline(points, start=0, end=8, width=8, top=1.0) == "▁█▁█    "


def test_points_further_apart_than_cells_leave_no_gaps() -> None:
    points = [(float(at), 0.5) for at in range(0, 100, 10)]
    assert draw_sparkline(points, start=0, end=100, width=50, top=1.0) == "▅" * 50


@given(
    st.lists(st.tuples(st.floats(-10, 110), st.floats(0, 1e12)), max_size=50).map(sorted),
    st.integers(0, 80),
)
def test_a_sparkline_has_the_requested_width(points: list[tuple[float, float]], width: int) -> None:
    assert len(draw_sparkline(points, start=0, end=100, width=width)) == width


@pytest.mark.parametrize("width", [80, 100, 140, 300])
@pytest.mark.parametrize("views", [CLUSTER, NODE])
def test_every_view_fits_eighty_columns(views: dict, width: int) -> None:
    for all_columns in views.values():
        columns = choose_columns(all_columns, width)
        available = width - 2 * len(columns) - 1
        assert sum(divide_width(columns, available)) <= available


@pytest.mark.parametrize(
    ("name", "width", "shown"),
    [
        ("lab-unet-ablation-1", 19, "lab-unet-ablation-1"),
        ("lab-unet-ablation-1", 11, "lab-u…ion-1"),
        ("团队一训练任务二", 9, "团队…务二"),
        ("abc", 1, "…"),
        ("abc", 0, ""),
    ],
)
def test_a_name_is_cut_in_its_middle(name: str, width: int, shown: str) -> None:
    assert cut_middle(name, width) == shown


@given(st.text(), st.integers(0, 30))
def test_a_name_cut_in_its_middle_fits(name: str, width: int) -> None:
    assert measure(cut_middle(name, width)) <= width


@pytest.mark.parametrize(
    ("pods", "width", "shown"),
    [
        (["a"], 12, "a"),
        (["server-0", "b"], 12, "server-0, b"),
        (["server-0", "server-1", "server-2"], 12, "server-0 +2"),
        (["server-name-0", "b"], 12, "serv…me-0 +1"),
        (["server-0", "b"], 30, "team/server-0, team/b"),
        (["server-name-0", "server-name-1"], 30, "team/server-name-0 +1"),
        ([], 12, "-"),
    ],
)
def test_as_many_holders_are_listed_as_fit(pods: list[str], width: int, shown: str) -> None:
    row = Row(holders=[{"namespace": "team", "pod": pod} for pod in pods])
    assert fit_holders(row, "en", width) == shown


@pytest.mark.parametrize(
    ("kind", "width", "shown"),
    [
        ("Deployment", 20, "server (Deployment)"),
        ("Deployment", 16, "server (deploy)"),
        ("Notebook", 12, "server"),
        ("", 12, "server"),
    ],
)
def test_the_name_of_a_workload_comes_before_its_kind(kind: str, width: int, shown: str) -> None:
    assert fit_workload(Row(kind=kind, name="server"), "en", width) == shown
