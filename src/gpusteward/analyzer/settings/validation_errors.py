"""Error texts for invalid settings: the setting, its value, its origin, what is allowed."""

import re
from collections.abc import Iterable, Mapping

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from gpusteward.analyzer.setting_values import mask_password
from gpusteward.analyzer.settings.fields import describe_allowed, is_secret
from gpusteward.core.did_you_mean import suggest
from gpusteward.core.settings import DEFAULT, Given

Known = Mapping[str, FieldInfo]


def describe(error: ValidationError, known: Known, given: Mapping[str, Given]) -> str:
    """All errors, one line each."""
    details = error.errors(include_url=False, include_context=False, include_input=False)
    return "\n".join(dict.fromkeys(_describe(each, known, given) for each in details))


def _describe(detail: ErrorDetails, known: Known, given: Mapping[str, Given]) -> str:
    path = _leaf(detail["loc"], known)
    if path is None:
        return _describe_section(detail, known, given)
    shown = _show_with_origin(path, known, given)
    own_words = detail["type"] in ("value_error", "assertion_error")
    return f"{path}: {shown}: {_message(detail) if own_words else 'write ' + describe_allowed(known[path])}"


def _describe_section(detail: ErrorDetails, known: Known, given: Mapping[str, Given]) -> str:
    """Several values that contradict each other: those the message names, or else all given ones."""
    section = ".".join(map(str, detail["loc"]))
    message = _message(detail)
    inside = [path for path in known if path.startswith(f"{section}.") or not section]
    named = [path for path in inside if re.search(rf"\b{re.escape(path.rpartition('.')[2])}\b", message)]
    concerned = [path for path in named if path in given] or [path for path in inside if path in given]
    shown = ", ".join(f"{path} {_show_with_origin(path, known, given)}" for path in concerned)
    return f"{shown or section}: {message}"


def _leaf(location: Iterable[int | str], known: Known) -> str | None:
    """The setting of an error; an error inside a list or a mapping belongs to the whole setting."""
    path = ""
    for part in location:
        path = f"{path}.{part}" if path else str(part)
        if path in known:
            return path
    return None


def _show_with_origin(path: str, known: Known, given: Mapping[str, Given]) -> str:
    origin = given[path].origin if path in given else DEFAULT
    return f"{show_given(path, known, given)} ({origin})"


def show_given(path: str, known: Known, given: Mapping[str, Given]) -> str:
    value = given[path].value if path in given else known[path].get_default(call_default_factory=True)
    return "a hidden value" if is_secret(known[path]) else mask_password(repr(value))


def _message(detail: ErrorDetails) -> str:
    return detail["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")


def describe_unknown(path: str, known: Iterable[str]) -> str:
    """A suggestion for an unknown setting."""
    has_section = "." in path
    near = ("" if has_section else _same_key_elsewhere(path, known)) or suggest(path, known)
    near = near or _same_key_elsewhere(path, known)
    return near.removeprefix("; ") or "`gpusteward settings` lists all settings"


def _same_key_elsewhere(path: str, known: Iterable[str]) -> str:
    key = path.rpartition(".")[2]
    found = next((name for name in known if name.rpartition(".")[2] == key), "")
    return f"did you mean {found!r}?" if found else ""
