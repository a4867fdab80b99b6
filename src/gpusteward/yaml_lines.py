"""YAML text -> values with their line. Of repeated keys the last one counts, where they are accepted at all."""

import re
from dataclasses import dataclass
from typing import Any

import yaml

from gpusteward.core.errors import ConfigurationError
from gpusteward.core.messages import Message
from gpusteward.core.settings import Origin, Source
from gpusteward.messages.errors import os_errors as messages

_INTEGER_BITS = 64  # larger ones cannot even be shown: Python refuses to write out 4,300 digits
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


@dataclass(frozen=True, slots=True)
class YamlLimits:
    """What a document may have. The time to read it grows with the characters, and with the values: an alias stands for
    all values below its anchor, so that a few lines of aliases can stand for billions."""

    characters: int
    values: int
    depth: int
    flow_collections: int  # "[" and "{", in texts too: libyaml's time grows with the square of those that are open
    scalar_characters: int
    may_have_aliases: bool
    may_repeat_keys: bool
    loader: type[yaml.SafeLoader] = yaml.SafeLoader  # its errors are plainer than libyaml's


FILE_LIMITS = YamlLimits(
    characters=4 << 20,
    values=200_000,
    depth=100,
    flow_collections=200_000,
    scalar_characters=1 << 20,
    may_have_aliases=True,
    may_repeat_keys=True,
)
"""Of a file of the operator."""
CLIENT_LIMITS = YamlLimits(
    characters=20_000,
    values=10_000,
    depth=20,
    flow_collections=2000,
    scalar_characters=1000,
    may_have_aliases=False,
    may_repeat_keys=False,
    loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader),  # libyaml's takes an eighth of the time
)
"""Of what a client sends. A policy has four levels."""


def parse_yaml(text: str, *, where: str, limits: YamlLimits = FILE_LIMITS) -> Written | None:
    """The document; None when it is empty. Raises ConfigurationError with the line of the error."""
    if len(text) > limits.characters or text.count("[") + text.count("{") > limits.flow_collections:
        raise ConfigurationError(messages.NOT_YAML, where=where, reason=messages.YAML_TOO_LARGE)
    try:
        return _Reader(text, limits).read()
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigurationError(messages.NOT_YAML, where=_locate(error, where), reason=_reason(error)) from None


class _LimitError(yaml.MarkedYAMLError):
    """A document beyond the limits."""

    def __init__(self, reason: Message, node: yaml.Node) -> None:
        super().__init__(problem_mark=node.start_mark)
        self.reason = reason


class _Reader:
    """Reads one document."""

    def __init__(self, text: str, limits: YamlLimits) -> None:
        """Raises yaml.YAMLError for control characters."""
        self._loader = limits.loader(text)
        self._limits = limits
        self._values = 0
        self._seen: set[int] = set()

    def read(self) -> Written | None:
        try:
            node = self._loader.get_single_node()
            return None if node is None else self._read_node(node, 0)
        finally:
            self._loader.dispose()

    def _read_node(self, node: yaml.Node, depth: int) -> Written:
        self._check(node, depth)
        line = node.start_mark.line + 1
        if isinstance(node, yaml.MappingNode):
            if not self._limits.may_repeat_keys:
                _check_keys(node)  # before merging: a key replaces that of an anchor
            if self._limits.may_have_aliases:
                self._loader.flatten_mapping(node)  # `<<: *anchor`
            children = {}
            for key, value in node.value:
                self._check(key, depth + 1)
                children[str(key.value)] = self._read_node(value, depth + 1)
            return Written(self._construct(node), None, line, children=children)
        if isinstance(node, yaml.SequenceNode):
            texts = tuple(str(each.value) for each in node.value if isinstance(each, yaml.ScalarNode))
            items = tuple(self._read_node(each, depth + 1) for each in node.value)
            return Written(self._construct(node), None, line, texts=texts, items=items)
        return Written(self._construct(node), str(node.value), line)

    def _check(self, node: yaml.Node, depth: int) -> None:
        """Raises _LimitError."""
        limits = self._limits
        self._values += 1
        if depth > limits.depth:
            raise _LimitError(messages.NESTED_TOO_DEEPLY, node)
        if self._values > limits.values or len(node.value) > limits.scalar_characters:
            raise _LimitError(messages.YAML_TOO_LARGE, node)
        if not limits.may_have_aliases and id(node) in self._seen:
            raise _LimitError(messages.YAML_ALIASES, node)
        self._seen.add(id(node))

    def _construct(self, node: yaml.Node) -> Any:
        """Raises yaml.YAMLError, also where PyYAML raises something else: for the date 2027-13-45, or `!!bool x`."""
        try:
            value = self._loader.construct_object(node, deep=True)
        except (ValueError, ArithmeticError, LookupError, AttributeError, TypeError):
            raise yaml.MarkedYAMLError(problem_mark=node.start_mark) from None
        if isinstance(value, int) and value.bit_length() > _INTEGER_BITS:
            raise _LimitError(messages.YAML_TOO_LARGE, node)
        return value


def _check_keys(mapping: yaml.MappingNode) -> None:
    """Raises _LimitError."""
    seen: set[str] = set()
    for key in (key for key, _ in mapping.value if isinstance(key, yaml.ScalarNode)):
        if key.value in seen:
            raise _LimitError(messages.YAML_KEY_TWICE.fill(key=key.value), key)
        seen.add(key.value)


def _locate(error: Exception, where: str) -> Origin | str:
    mark = getattr(error, "problem_mark", None)
    return where if mark is None else Origin(Source.FILE, where, mark.line + 1)


def _reason(error: Exception) -> Message | str:
    """The parser's own words are English."""
    if isinstance(error, _LimitError):
        return error.reason
    if isinstance(error, RecursionError):
        return messages.NESTED_TOO_DEEPLY
    reason = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "")
    if not reason:
        return messages.UNREADABLE_YAML
    return _QUOTED.sub(r"\1 (hidden)", reason)
