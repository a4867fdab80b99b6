"""Facts put into a text; in English a word follows its number: `{gpus} {gpus:|GPU|GPUs}` is `1 GPU` or `8 GPUs`."""

import string
from collections.abc import Mapping
from typing import Any


class _Filler(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if not format_spec.startswith("|"):
            return str(super().format_field(value, format_spec))
        one, many = format_spec[1:].split("|")
        return one if round(value) == 1 else many  # as people read it: 0.7 minutes are written as 1


_FILLER = _Filler()


def fill(text: str, facts: Mapping[str, Any]) -> str:
    """What stands in a fact is never taken for a place to fill. Raises KeyError for a fact that is missing."""
    return _FILLER.vformat(text, (), facts)
