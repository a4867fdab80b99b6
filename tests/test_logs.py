"""The log: one event a line, its facts as `key=value` or as JSON."""

import json
import logging

import pytest

from gpusteward.logs import ROOT, Log, configure_logs

LOG = Log("gpusteward.somewhere")


def test_an_event_is_one_line_with_its_facts(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(level="info", as_json=False)
    LOG.warning("csv_refused", path="/etc/x.csv", line=7, reason="unknown field", hint="")
    stamp, rest = capsys.readouterr().err.split(" ", 1)
    assert stamp.endswith("Z")
    assert rest == 'WARNING csv_refused path=/etc/x.csv line=7 reason="unknown field" hint=""\n'


def test_external_text_cannot_forge_a_line_or_a_fact(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(level="info", as_json=False)
    LOG.info("pod_seen", name='x level=error\n2026-01-01T00:00:00Z ERROR forged "\x1b[2J\x9b2J\u2028', team="模型 组")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isprintable()
    assert ' name="x level=error\\n' in line
    assert line.endswith(' team="模型 组"')


def test_json_is_one_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(level="info", as_json=True)
    LOG.error("gpu_lost", gpu="GPU-1", count=2, reason=ValueError("außer Betrieb"))
    written = json.loads(capsys.readouterr().err)
    assert written.pop("time").endswith("Z")
    assert written == {"level": "error", "event": "gpu_lost", "gpu": "GPU-1", "count": 2, "reason": "außer Betrieb"}


HOSTILE = "a\x1b[2J\x7f\x9b2J\u202egnp.exe\u2066\u200b\u2028\ufeff\U000e0041\ud800"


@pytest.mark.parametrize("as_json", [True, False])
def test_control_and_bidirectional_characters_are_escaped(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    configure_logs(level="info", as_json=as_json)
    LOG.info("pod_seen", name=HOSTILE, **{"label\u202e": "模型 组"})
    logging.getLogger(ROOT).warning("foreign\n\u202e text")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)
    assert "\\u202egnp.exe" in lines[0]
    assert "模型 组" in lines[0]
    if as_json:
        assert json.loads(lines[0])["name"] == HOSTILE  # escaped, not lost


def test_events_below_the_level_are_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(level="warning", as_json=False)
    LOG.debug("a_said")
    LOG.info("b_said")
    LOG.warning("c_said")
    LOG.error("d_said")
    assert [line.split()[2] for line in capsys.readouterr().err.splitlines()] == ["c_said", "d_said"]
