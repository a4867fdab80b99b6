"""Answers of the API, compared with golden files. After an intended change: `make golden`, then read the diff."""

import json
import os
from pathlib import Path
from typing import Any

from gpusteward import __version__

GOLDEN = Path(__file__).parent / "golden"
WIDTH = 160


def assert_golden(name: str, text: str) -> None:
    path = GOLDEN / name
    text = text.replace(__version__, "VERSION")
    if os.environ.get("GPUSTEWARD_WRITE_GOLDEN") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def assert_golden_json(name: str, value: Any) -> None:
    assert_golden(name, format_json(value) + "\n")


def format_json(value: Any, indent: str = "") -> str:
    """What fits into a line stands in one; the order of fields is that of the answer."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) <= WIDTH or not isinstance(value, dict | list) or not value:
        return line
    deeper = indent + " "
    if isinstance(value, list):
        items = [deeper + format_json(each, deeper) for each in value]
        return "[\n" + ",\n".join(items) + f"\n{indent}]"
    items = [f"{deeper}{json.dumps(name)}: {format_json(each, deeper)}" for name, each in value.items()]
    return "{\n" + ",\n".join(items) + f"\n{indent}}}"
