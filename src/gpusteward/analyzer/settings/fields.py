"""Finds every setting by its path, such as `thresholds.idle`, and describes its allowed values."""

import types
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr, TypeAdapter
from pydantic.fields import FieldInfo

from gpusteward.analyzer.setting_values import SecretFile

Json = Mapping[str, Any]
_TYPES = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "string": "text",
    "array": "a list",
    "object": "a mapping of keys to values",
}
"""By JSON schema type."""
_BOUNDS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}


def find_settings(model: type[BaseModel], prefix: str = "") -> dict[str, FieldInfo]:
    """Every setting by its path. A section is a model; all other fields are settings, but for those excluded."""
    found: dict[str, FieldInfo] = {}
    for name, field in model.model_fields.items():
        if field.exclude:
            continue
        inner = find_section(field)
        found |= find_settings(inner, f"{prefix}{name}.") if inner else {f"{prefix}{name}": field}
    return found


def find_section(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a section; None for a setting."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def is_text(field: FieldInfo) -> bool:
    """Whether the setting is text, so that `4` in the file means the text "4"."""
    return all(
        all(isinstance(word, str) for word in get_args(kind))
        if get_origin(kind) is Literal
        else kind in (str, SecretStr, SecretFile, Path, types.NoneType)
        for kind in _flatten(field.annotation)
    )


def is_collection(field: FieldInfo) -> bool:
    """Whether the value is a list or a mapping."""
    kinds = (get_origin(kind) or kind for kind in _flatten(field.annotation))
    collections = (list, tuple, dict, set, frozenset, Mapping)
    return any(isinstance(kind, type) and issubclass(kind, collections) for kind in kinds)


def is_secret(field: FieldInfo) -> bool:
    return any(kind is SecretStr for kind in _flatten(field.annotation, deep=True))


def find_secret_files(known: Mapping[str, FieldInfo]) -> dict[str, str]:
    """The other spelling of each secret that may be in a file: `ai.api_key_file` -> `ai.api_key`."""
    return {
        f"{path}_file": path
        for path, field in known.items()
        if any(kind is SecretFile for kind in _flatten(field.annotation))
    }


def describe_allowed(field: FieldInfo) -> str:
    """The allowed values, from the type and the bounds of the field: `a number from 0 to 100`."""
    kind: Any = Annotated[field.annotation, field]
    return _describe_schema(TypeAdapter(kind).json_schema())


def _flatten(kind: Any, *, deep: bool = False) -> Iterator[Any]:
    """The members of a union, or the type itself; `deep` also enters lists and mappings."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType) or origin is Annotated or (deep and origin not in (None, Literal)):
        for inner in get_args(kind):
            yield from _flatten(inner, deep=deep)
    else:
        yield kind


def _describe_schema(schema: Json) -> str:
    if "anyOf" in schema:
        parts = dict.fromkeys(_describe_schema(part) for part in schema["anyOf"] if part.get("type") != "null")
        return reduce(lambda first, second: f"{first} or {second}", parts)
    if "enum" in schema or "const" in schema:
        return f"one of {', '.join(map(str, schema.get('enum') or [schema['const']]))}"
    kind = _add_bounds(_TYPES.get(str(schema.get("type")), "another value"), schema)
    return f"{kind} like {schema['pattern']}" if "pattern" in schema else kind


def _add_bounds(kind: str, schema: Json) -> str:
    if "minimum" in schema and "maximum" in schema:
        return f"{kind} from {schema['minimum']:g} to {schema['maximum']:g}"
    bounds = [f"{word} {schema[key]:g}" for key, word in _BOUNDS.items() if key in schema]
    return f"{kind} {' and '.join(bounds)}" if bounds else kind
