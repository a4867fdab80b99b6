"""`gpusteward settings`: effective values and their origin."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpusteward.cli.main import main

SECRET = "sk-never-to-be-seen"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "config.yaml").write_text("thresholds:\n  low_utilization: 25\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AI_API_KEY", SECRET)
    return tmp_path


def test_the_table_shows_value_and_origin_of_every_setting(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "--address", ":80"]) == 0
    printed = capsys.readouterr().out
    rows = {line.split()[0]: line.split(maxsplit=1)[1].strip() for line in printed.splitlines()}
    assert rows["SETTING"].split() == ["VALUE", "ORIGIN"]
    assert rows["thresholds.low_utilization"].split(maxsplit=1) == ["25", "config.yaml line 2"]
    assert rows["ai.api_key"].split(maxsplit=1) == ["**********", "environment variable AI_API_KEY"]
    assert rows["server.address"].split(maxsplit=1) == [":80", "flag --address"]
    assert rows["thresholds.idle"].split(maxsplit=1) == ["10", "default"]
    assert SECRET not in printed
    assert max(map(len, printed.splitlines())) < 180


def test_json_also_has_descriptions(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "--output", "json"]) == 0
    printed = capsys.readouterr().out
    rows = {row["setting"]: row for row in json.loads(printed)}
    assert rows["thresholds.low_utilization"] == {
        "setting": "thresholds.low_utilization",
        "value": 25,
        "source": "file",
        "origin": "config.yaml line 2",
        "about": "Below this score a GPU is low.",
    }
    assert rows["ai.api_key"]["source"] == "environment"
    assert SECRET not in printed


def test_csv_has_values_and_origins(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "-o", "csv"]) == 0
    printed = capsys.readouterr().out
    rows = {row["setting"]: row for row in csv.DictReader(io.StringIO(printed))}
    assert rows["thresholds.low_utilization"]["value"] == "25"
    assert rows["thresholds.low_utilization"]["origin"] == "config.yaml line 2"
    assert SECRET not in printed


def test_a_wrong_value_is_one_line_and_exit_code_2(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "--set", "notify.language=fr"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "gpusteward: notify.language: 'fr' (flag --set): write one of en, zh\n"


def test_a_missing_library_is_reported_with_the_extra_that_installs_it(tmp_path: Path) -> None:
    program = (
        "import sys\nsys.modules['pydantic'] = None\nfrom gpusteward.cli.main import main\nsys.exit(main(['settings']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "is not installed: pip install gpusteward" in done.stderr
