"""Error texts for invalid settings: the setting, its value, its origin, what is allowed."""

import re
from collections.abc import Iterable, Mapping

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from gpusteward.analyzer.setting_values import mask_password
from gpusteward.analyzer.settings.fields import describe_allowed, is_secret
from gpusteward.core.did_you_mean import find_nearest
from gpusteward.core.settings import DEFAULT, Given, InvalidSettingError, Origin

Known = Mapping[str, FieldInfo]

_CONSTANT = "it is a constant now, because nobody had a reason to choose it: remove it"
_CONSTANTS = (
    *("prometheus.retries", "prometheus.max_concurrent_queries", "prometheus.series_limit"),
    *("scheduler.max_result_age_seconds", "control.opinion_wait_minutes", "notify.lost_minutes"),
    *("ai.timeout", "scrape.keep_minutes", "server.session_hours"),
    *("outbox", "outbox.max_attempts", "outbox.max_age_hours", "ledger.buffer_megabytes", "ledger.lease_seconds"),
)
GONE: Mapping[str, str] = {
    **dict.fromkeys(_CONSTANTS, _CONSTANT),
    "prometheus.urls": "write all addresses into prometheus.url",
    "scrape.kubernetes": "write an empty scrape.selector instead of never",
    "auth.oidc.jwks_file": "write file:///PATH into auth.oidc.jwks_url",
    "notify.default": "write them into notify.namespaces, for the namespace `*`",
    "ai.price_per_1k_input_tokens": "write it into ai.price_per_1k_tokens, as input",
    "ai.price_per_1k_output_tokens": "write it into ai.price_per_1k_tokens, as output",
    "prices.default": "write it into prices.per_gpu_hour, for the model `*`",
    "ai.language": "it is that of notify.language",
    "alertmanager.severity": "write it into alertmanager.labels, as severity",
}
"""Settings that were there, and what to do instead."""


def describe(error: ValidationError, known: Known, given: Mapping[str, Given]) -> str:
    """All errors, one line each."""
    details = error.errors(include_url=False, include_input=False)
    return "\n".join(dict.fromkeys(_describe(each, known, given) for each in details))


def _describe(detail: ErrorDetails, known: Known, given: Mapping[str, Given]) -> str:
    path = _leaf(detail["loc"], known)
    if path is None:
        return _describe_section(detail, known, given)
    own_words = detail["type"] in ("value_error", "assertion_error")
    problem = _problem(detail) if own_words else f"write {describe_allowed(known[path])}"
    inside = detail["loc"][path.count(".") + 1 :]
    if len(inside) > 1 and isinstance(inside[0], int):  # a key of an item of a list
        problem = f"{'.'.join(map(str, inside))}: {_problem(detail)}"
    return f"{path}: {_show_given(path, known, given)} ({_origin(path, given)}): {problem}"


def _describe_section(detail: ErrorDetails, known: Known, given: Mapping[str, Given]) -> str:
    """Several values that contradict each other: those the message names, or else all given ones."""
    section = ".".join(map(str, detail["loc"]))
    problem = _problem(detail)
    inside = [path for path in known if path.startswith(f"{section}.") or not section]
    named = [path for path in inside if re.search(rf"\b{re.escape(path.rpartition('.')[2])}\b", problem)]
    concerned = [path for path in named if path in given] or [path for path in inside if path in given]
    shown = [f"{path} {_show_given(path, known, given)} ({_origin(path, given)})" for path in concerned]
    return f"{', '.join(shown) or section}: {problem}"


def _leaf(location: Iterable[int | str], known: Known) -> str | None:
    """The setting of an error; an error inside a list or a mapping belongs to the whole setting."""
    path = ""
    for part in location:
        path = f"{path}.{part}" if path else str(part)
        if path in known:
            return path
    return None


def _origin(path: str, given: Mapping[str, Given]) -> Origin:
    return given[path].origin if path in given else DEFAULT


def _show_given(path: str, known: Known, given: Mapping[str, Given]) -> str:
    value = given[path].value if path in given else known[path].get_default(call_default_factory=True)
    return "a hidden value" if is_secret(known[path]) else mask_password(repr(value))


def _problem(detail: ErrorDetails) -> str:
    """Of an error that a validator raised; in pydantic's words for all others."""
    raised = detail.get("ctx", {}).get("error")
    if isinstance(raised, InvalidSettingError):
        return str(raised)
    return detail["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")


def describe_unknown(path: str, known: Iterable[str]) -> str:
    """A suggestion for an unknown setting."""
    if path in GONE:
        return GONE[path]
    has_section = "." in path
    near = ("" if has_section else _same_key_elsewhere(path, known)) or find_nearest(path, known)
    near = near or _same_key_elsewhere(path, known)
    return f"did you mean {near!r}?" if near else "`gpusteward settings` lists all settings"


def _same_key_elsewhere(path: str, known: Iterable[str]) -> str:
    key = path.rpartition(".")[2]
    return next((name for name in known if name.rpartition(".")[2] == key), "")
