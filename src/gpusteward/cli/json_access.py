"""Values out of answers: JSON from outside may hold anything, or nothing, where something was expected."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from gpusteward.cli.output.terminal_text import clean

Row = Mapping[str, Any]


def text(row: Row, key: str) -> str:
    """Fit for a terminal; empty where there is none."""
    value = row.get(key)
    return clean(value) if isinstance(value, str) else ""


def number(row: Row, key: str) -> float | None:
    """None is unknown, as is everything that is no number."""
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value


def count(row: Row, key: str) -> int:
    return int(number(row, key) or 0)


def inner(row: Row, key: str) -> Row:
    """The object at a key; an empty one where there is none."""
    value = row.get(key)
    return value if isinstance(value, dict) else {}


def each(row: Row, key: str) -> list[Row]:
    """The objects in the list at a key."""
    value = row.get(key)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def texts(row: Row, key: str) -> list[str]:
    value = row.get(key)
    return [clean(one) for one in value if isinstance(one, str)] if isinstance(value, list) else []


def moment(row: Row, key: str) -> float | None:
    """Unix seconds of a time as the API writes it."""
    value = row.get(key)
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value).timestamp()
    except ValueError:
        return None


def numbers(row: Row) -> Iterator[tuple[str, float]]:
    """Every number of an object, with its name."""
    names: Iterable[str] = row
    for name in names:
        value = number(row, name)
        if value is not None:
            yield clean(str(name)), value
