"""Structured logging: an event is `noun_verbed`, its facts are `key=value`.

log = Log(__name__)
log.warning("csv_refused", path=path, line=7, reason="unknown field")

2026-11-15T20:40:34Z WARNING csv_refused path=/etc/counters.csv line=7 reason="unknown field"
"""

import json
import logging
import sys
import time
from collections.abc import Mapping

from gpusteward.control_characters import escape_controls

LEVELS = ("debug", "info", "warning", "error")
ROOT = "gpusteward"


class Log:
    """A named logger for events with facts."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **facts: object) -> None:
        self._write(logging.DEBUG, event, facts)

    def info(self, event: str, **facts: object) -> None:
        self._write(logging.INFO, event, facts)

    def warning(self, event: str, **facts: object) -> None:
        self._write(logging.WARNING, event, facts)

    def error(self, event: str, **facts: object) -> None:
        self._write(logging.ERROR, event, facts)

    def _write(self, level: int, event: str, facts: Mapping[str, object]) -> None:
        self._logger.log(level, event, extra={"facts": facts})


def configure_logs(*, level: str, as_json: bool) -> None:
    """Log to standard error at this level, as text or as one JSON object per line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    root = logging.getLogger(ROOT)
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False


class TextFormatter(logging.Formatter):
    """`time LEVEL event key=value ...`, with quoted values where needed."""

    def format(self, record: logging.LogRecord) -> str:
        facts = "".join(f" {escape_controls(key)}={_quote(value)}" for key, value in _facts(record).items())
        return f"{_stamp(record)} {record.levelname} {escape_controls(record.getMessage())}{facts}"


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        head = {"time": _stamp(record), "level": record.levelname.lower(), "event": record.getMessage()}
        return escape_controls(json.dumps(head | dict(_facts(record)), default=str, ensure_ascii=False))


def _facts(record: logging.LogRecord) -> Mapping[str, object]:
    facts: Mapping[str, object] = getattr(record, "facts", {})
    return facts


def _stamp(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))


def _quote(value: object) -> str:
    """Quote values with blanks or special characters: external strings must not forge log lines."""
    text = str(value)
    printable = text.isprintable()
    if text and printable and not any(c in text for c in ' "='):
        return text
    return escape_controls(json.dumps(text, ensure_ascii=not printable))
