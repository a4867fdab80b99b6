"""A report as JSON, and back."""

import json
from collections.abc import Sequence
from dataclasses import asdict, fields, is_dataclass
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from gpusteward.analyzer.reports.report import Report


def render_json(report: Report, *, indent: int | None = None) -> str:
    """Non-ASCII characters are not escaped."""
    separators = (",", ": ") if indent else (",", ":")
    return json.dumps(asdict(report), ensure_ascii=False, indent=indent, separators=separators, allow_nan=False)


def read_report(value: object) -> Report:
    """From a server's response; unknown keys of a newer server are ignored. Raises ValueError.

    By the types of the fields and without a library: the archive of the kubectl plugin has none that is compiled.
    """
    report: Report = _read(Report, value)
    return report


def _read(wanted: Any, value: object) -> Any:
    if is_dataclass(wanted) and isinstance(value, dict):
        types, found = get_type_hints(wanted), {}
        for name in (each.name for each in fields(wanted) if each.name in value):
            try:
                found[name] = _read(types[name], value[name])
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
        try:
            return wanted(**found)  # type: ignore[operator]  # a class
        except TypeError as error:  # a field without a default is missing
            raise ValueError(str(error)) from error
    if get_origin(wanted) is UnionType:  # with None, for what is unknown
        return None if value is None else _read(get_args(wanted)[0], value)
    if get_origin(wanted) is Sequence and isinstance(value, list):
        return [_read(get_args(wanted)[0], each) for each in value]
    if wanted is float and type(value) is int:
        return float(value)
    if type(value) is not wanted:
        raise ValueError(f"{str(value)[:100]!r} is no {wanted}")
    return value
