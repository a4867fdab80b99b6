"""Typed access to JSON documents of a server, which may lack any key or have another type there."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from gpusteward.cli.output.terminal_text import clean

Row = Mapping[str, Any]
LARGEST = 1e21


def as_object(document: object) -> Row:
    """An empty object for any other type."""
    return document if isinstance(document, dict) else {}


def get_text(row: Row, key: str) -> str:
    """Safe for a terminal; empty if missing."""
    value = row.get(key)
    return clean(value) if isinstance(value, str) else ""


def get_number(row: Row, key: str) -> float | None:
    """None if missing or not a number that can be shown."""
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < LARGEST else None  # NaN is not smaller either


def get_count(row: Row, key: str) -> int:
    return int(get_number(row, key) or 0)


def get_object(row: Row, key: str) -> Row:
    return as_object(row.get(key))


def get_objects(row: Row, key: str) -> list[Row]:
    """The objects in a list."""
    value = row.get(key)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def get_texts(row: Row, key: str) -> list[str]:
    value = row.get(key)
    return [clean(one) for one in value if isinstance(one, str)] if isinstance(value, list) else []


def get_time(row: Row, key: str) -> float | None:
    """Unix seconds of a time in ISO 8601."""
    value = row.get(key)
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError):
        return None


def list_numbers(row: Row) -> Iterator[tuple[str, float]]:
    """Every number of an object with its key."""
    names: Iterable[str] = row
    for name in names:
        value = get_number(row, name)
        if value is not None:
            yield clean(str(name)), value
