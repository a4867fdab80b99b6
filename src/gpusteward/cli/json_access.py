"""Typed access to JSON documents of a server, which may lack any key or have another type there."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from gpusteward.cli.output.terminal_text import clean

LARGEST = 1e21


class Row(dict[str, Any]):
    """A JSON object. What is missing, or has another type, reads as empty or None."""

    def text(self, key: str) -> str:
        """Safe for a terminal; empty if missing."""
        value = self.get(key)
        return clean(value) if isinstance(value, str) else ""

    def number(self, key: str, *, unit: int = 1) -> float | None:
        """In a unit of so many; None if missing or not a number that can be shown."""
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST:  # NaN is not
            return None
        return value if unit == 1 else value / unit

    def count(self, key: str) -> int:
        return int(self.number(key) or 0)

    def object(self, key: str) -> "Row":
        return as_object(self.get(key))

    def objects(self, key: str) -> list["Row"]:
        """The objects in a list."""
        value = self.get(key)
        return [as_object(one) for one in value if isinstance(one, dict)] if isinstance(value, list) else []

    def texts(self, key: str) -> list[str]:
        value = self.get(key)
        return [clean(one) for one in value if isinstance(one, str)] if isinstance(value, list) else []

    def time(self, key: str) -> float | None:
        """Unix seconds of a time in ISO 8601."""
        try:
            return datetime.fromisoformat(self[key]).timestamp()
        except (KeyError, TypeError, ValueError, OverflowError):
            return None

    def numbers(self) -> Iterator[tuple[str, float]]:
        """Every number with its key."""
        for name in self:
            value = self.number(name)
            if value is not None:
                yield clean(name), value


def as_object(document: object) -> Row:
    """An empty object for any other type."""
    if isinstance(document, Row):
        return document
    return Row(document) if isinstance(document, dict) else Row()


def decode_object(body: bytes) -> Row:
    """An empty object for any other JSON. Raises ValueError, RecursionError."""
    return as_object(json.loads(body, object_hook=Row))
