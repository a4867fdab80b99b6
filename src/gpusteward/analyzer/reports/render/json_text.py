"""A report as JSON, and back."""

import json
from dataclasses import asdict

from gpusteward.analyzer.reports.report import Report


def render_json(report: Report, *, indent: int | None = None) -> str:
    """Non-ASCII characters are not escaped."""
    separators = (",", ": ") if indent else (",", ":")
    return json.dumps(asdict(report), ensure_ascii=False, indent=indent, separators=separators, allow_nan=False)


def read_report(value: object) -> Report:
    """From a server's response; unknown keys of a newer server are ignored. Raises ValueError."""
    from pydantic import TypeAdapter

    return TypeAdapter(Report).validate_python(value)
