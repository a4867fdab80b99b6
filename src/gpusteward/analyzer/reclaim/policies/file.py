"""The policy file while the program runs: a changed file is applied, an unusable one is refused and logged once.

While there is no file that can be used, at the start or later, nothing new is warned of or done: there are no policies,
and `error` says why. Earlier ones are forgotten, so that a restart changes nothing.
"""

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gpusteward.analyzer.reclaim.policies.policy import (
    NO_POLICIES,
    KeepFields,
    LimitFields,
    Match,
    Policy,
    PolicyFile,
)
from gpusteward.analyzer.watched_file import WatchedFile
from gpusteward.core.did_you_mean import find_nearest
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.messages import Message
from gpusteward.core.settings import InvalidSettingError, Origin, Source
from gpusteward.logs import Log
from gpusteward.messages import policies as messages
from gpusteward.yaml_lines import FILE_LIMITS, Written, YamlLimits, parse_yaml

log = Log(__name__)

_LIMITS = replace(FILE_LIMITS, may_repeat_keys=False)  # a second `policies:` would hide the first
_MOST_ERRORS = 20  # that are shown
_SECTIONS: dict[str, type[BaseModel]] = {"limits": LimitFields, "keep": KeepFields, "match": Match}


def parse_policies(text: str, *, where: str, limits: YamlLimits = _LIMITS) -> PolicyFile:
    """Raises ConfigurationError with the file, the line, what is wrong and what to write, one line per error."""
    written = parse_yaml(text, where=where, limits=limits)
    if written is None or written.value in (None, {}, {"policies": None}):  # what is left of a file that was cut off
        line = _find_line(written, ["policies"]) if written else 1
        raise ConfigurationError(messages.EMPTY_POLICY_FILE, where=Origin(Source.FILE, where, line))
    if not isinstance(written.value, dict):
        raise ConfigurationError(messages.NOT_A_POLICY_FILE, where=Origin(Source.FILE, where, written.line))
    try:
        return PolicyFile.model_validate(written.value)
    except ValidationError as error:
        lines = [_describe(each, written, where) for each in error.errors(include_url=False)[:_MOST_ERRORS]]
        raise ConfigurationError(
            Message("\n".join(each.en for each in lines), "\n".join(each.zh for each in lines))
        ) from None


def _describe(detail: ErrorDetails, written: Written, where: str) -> Message:
    location = [part for part in detail["loc"] if part != "function-before[_read_seconds(), constrained-float]"]
    origin = Origin(Source.FILE, where, _find_line(written, location))
    return messages.INVALID_POLICY.fill(path=_show(location), where=origin, problem=_problem(detail, location))


def _problem(detail: ErrorDetails, location: Sequence[int | str]) -> Message:
    raised = detail.get("ctx", {}).get("error")
    if detail["type"] == "extra_forbidden":
        return _explain_unknown(location)
    if detail["type"] == "missing":
        return messages.MISSING_POLICY_FIELD
    reason = raised.problem if isinstance(raised, InvalidSettingError) else Message(detail["msg"], detail["msg"])
    if detail["input"] is None or isinstance(detail["input"], dict | list):
        return reason
    return messages.WRITE_FIELD.fill(value=repr(detail["input"]), reason=reason)


def _explain_unknown(location: Sequence[int | str]) -> Message:
    parents = [str(part) for part in location[:-1] if isinstance(part, str)]
    model: type[BaseModel] = PolicyFile if not parents else _SECTIONS.get(parents[-1], Policy)
    names = list(model.model_fields)
    near = find_nearest(str(location[-1]), names)
    hint = messages.FIELD_HINT.fill(nearest=near) if near else messages.FIELD_LIST.fill(names=", ".join(names))
    return messages.UNKNOWN_POLICY_FIELD.fill(hint=hint)


def _find_line(written: Written, location: Sequence[int | str]) -> int:
    """Of the value, or of the nearest one around it that exists."""
    for part in location:
        inside = (
            written.items[part]
            if isinstance(part, int) and 0 <= part < len(written.items)
            else (written.children or {}).get(str(part))
        )
        if inside is None:
            return written.line
        written = inside
    return written.line


def _show(location: Sequence[int | str]) -> str:
    """`policies[0].window`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".") or "policies"


class WatchedPolicies:
    """The policies in effect. Safe to use from any thread."""

    def __init__(self, path: Path | None) -> None:
        """A file that cannot be used does not stop the program: what is suspended must be given back all the same."""
        self.current: PolicyFile = NO_POLICIES
        self.error: Message | None = messages.NO_POLICY_FILE  # why there are no policies; None: there are
        self.has_file = path is not None
        self.reloads_ok = self.reloads_refused = 0
        self._lock = threading.Lock()
        self._watched = WatchedFile(path, setting="reclaim.policy_file") if path else None
        self.poll()
        self.reloads_ok = 0

    def poll(self) -> PolicyFile:
        """The policies to use from now on: none while the file cannot be used."""
        with self._lock:
            if self._watched is not None and self._watched.has_changed():
                try:
                    self._accept(parse_policies(self._watched.read(), where=str(self._watched.path)))
                except ConfigurationError as error:
                    self._refuse(error)
        return self.current

    def _accept(self, policies: PolicyFile) -> None:
        if policies != self.current or self.error is not None:
            self.current = policies
            self.reloads_ok += 1
            log.info("policies_loaded", policies=len(policies.policies))
        self.error = None

    def _refuse(self, error: ConfigurationError) -> None:
        """Log it once: the same error returns at every poll while the file is missing."""
        reason = error.as_message()
        if reason != self.error:
            self.reloads_refused += 1
            log.warning("policies_refused", reason=str(error), effect="nothing new is warned of or done")
        self.error, self.current = reason, NO_POLICIES
