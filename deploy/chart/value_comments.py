"""The values of the chart with their comments: `# -- description` and `# @schema {...}` above a key."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parent / "gpusteward"
VALUES = CHART / "values.yaml"


@dataclass(frozen=True)
class Value:
    """A key of values.yaml."""

    key: str
    default: Any
    description: str
    schema: Mapping[str, Any]
    children: Mapping[str, "Value"]


def read_values(path: Path = VALUES) -> dict[str, Value]:
    text = path.read_text(encoding="utf-8")
    return _read_mapping(yaml.compose(text, Loader=yaml.SafeLoader), text.splitlines())


def walk(values: Mapping[str, Value], prefix: str = "") -> Iterator[tuple[str, Value]]:
    """Every value with its path, such as `agent.image.tag`, sections before their keys."""
    for key, value in values.items():
        path = f"{prefix}{key}"
        yield path, value
        yield from walk(value.children, f"{path}.")


def _read_mapping(node: yaml.Node, lines: Sequence[str]) -> dict[str, Value]:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return {key.value: _read_value(key, value, lines) for key, value in pairs}


def _read_value(key: yaml.Node, node: yaml.Node, lines: Sequence[str]) -> Value:
    comment = _comment_above(lines, key.start_mark.line)
    schema = next((line.removeprefix("@schema ") for line in comment if line.startswith("@schema ")), "{}")
    words = [line.removeprefix("-- ") for line in comment if not line.startswith("@schema ")]
    loader = yaml.SafeLoader("")
    default = loader.construct_object(node, deep=True)  # type: ignore[no-untyped-call]
    is_section = not schema.startswith(("{$ref", "{type", "{settings"))
    children = _read_mapping(node, lines) if is_section else {}
    return Value(key.value, default, " ".join(words), yaml.safe_load(schema), children)


def _comment_above(lines: Sequence[str], line: int) -> list[str]:
    """The comment that begins with `--` or `@schema` and ends on the line above."""
    found: list[str] = []
    while line and lines[line - 1].strip().startswith("#"):
        line -= 1
        found.insert(0, lines[line].strip().lstrip("#").strip())
    starts = [number for number, text in enumerate(found) if text.startswith(("-- ", "@schema "))]
    return found[starts[0] :] if starts else []
