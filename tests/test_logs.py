"""The log: one event a line, its facts as `key=value` or as JSON."""

import json
import logging
from collections.abc import Iterator

import pytest

from gpusteward.logs import ROOT, Log, configure_logs

LOG = Log("gpusteward.somewhere")


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """The root logger of the product, put back afterwards."""
    root = logging.getLogger(ROOT)
    before = root.handlers[:], root.level, root.propagate
    yield
    root.handlers[:], root.level, root.propagate = before


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


def test_events_below_the_level_are_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(level="warning", as_json=False)
    LOG.debug("a_said")
    LOG.info("b_said")
    LOG.warning("c_said")
    LOG.error("d_said")
    assert [line.split()[2] for line in capsys.readouterr().err.splitlines()] == ["c_said", "d_said"]
