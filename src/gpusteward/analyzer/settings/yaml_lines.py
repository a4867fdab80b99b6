"""YAML text -> values with their line. Of repeated keys the last one counts, as usual in YAML."""

import re
from dataclasses import dataclass
from typing import Any

import yaml

from gpusteward.core.errors import ConfigurationError
from gpusteward.core.messages import Message
from gpusteward.core.settings import Origin, Source
from gpusteward.messages.errors import settings_errors as messages

_QUOTED = re.compile(r"(alias|anchor|handle|tag) ['\"].*")
"""YAML errors quote the text: a secret that begins with `*` or `!` would appear as an alias or a tag."""


@dataclass(frozen=True, slots=True)
class Written:
    """A value of the file."""

    value: object  # as parsed
    text: str | None  # of a scalar, as written
    line: int
    children: "dict[str, Written] | None" = None  # of a mapping
    texts: tuple[str, ...] = ()  # of a list, its scalars as written
    items: "tuple[Written, ...]" = ()  # of a list


def parse_yaml(text: str, *, where: str) -> Written | None:
    """The document; None when it is empty. Raises ConfigurationError with the line of the error."""
    try:
        return _parse(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigurationError(messages.NOT_YAML, where=_locate(error, where), reason=_reason(error)) from None


def _parse(text: str) -> Written | None:
    loader = yaml.SafeLoader(text)  # refuses control characters at once
    try:
        node = loader.get_single_node()
        return None if node is None else _written(node, loader)
    finally:
        loader.dispose()


def _written(node: yaml.Node, loader: yaml.SafeLoader) -> Written:
    line = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        loader.flatten_mapping(node)  # `<<: *anchor`
        children = {str(key.value): _written(value, loader) for key, value in node.value}
        return Written(_construct(node, loader), None, line, children=children)
    if isinstance(node, yaml.SequenceNode):
        texts = tuple(str(each.value) for each in node.value if isinstance(each, yaml.ScalarNode))
        items = tuple(_written(each, loader) for each in node.value)
        return Written(_construct(node, loader), None, line, texts=texts, items=items)
    return Written(_construct(node, loader), str(node.value), line)


def _construct(node: yaml.Node, loader: yaml.SafeLoader) -> Any:
    return loader.construct_object(node, deep=True)


def _locate(error: Exception, where: str) -> Origin | str:
    mark = getattr(error, "problem_mark", None)
    return where if mark is None else Origin(Source.FILE, where, mark.line + 1)


def _reason(error: Exception) -> Message | str:
    """The parser's own words are English."""
    if isinstance(error, RecursionError):
        return messages.NESTED_TOO_DEEPLY
    reason = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "")
    if not reason:
        return messages.UNREADABLE_YAML
    return _QUOTED.sub(r"\1 (hidden)", reason)
