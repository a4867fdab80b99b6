"""The policy file, field by field, and what is wrong with one, with its line. `docs/reference/policies.md` is generated
from these models.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import time
from typing import Annotated, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from gpusteward.analyzer.reclaim.policies.policy import CHANGING_ACTIONS, Hours, ReclaimAction
from gpusteward.analyzer.reclaim.policies.pool_rule import CAREFUL, PRESETS, KeepRule
from gpusteward.analyzer.setting_values import read_zone, split_list
from gpusteward.core.did_you_mean import find_nearest
from gpusteward.core.errors import ConfigurationError
from gpusteward.core.kinds import WorkloadClass
from gpusteward.core.messages import Message
from gpusteward.core.settings import InvalidSettingError, Origin, Source, parse_duration
from gpusteward.messages import policies as messages
from gpusteward.yaml_lines import FILE_LIMITS, Written, YamlLimits, parse_yaml

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_HOURS = re.compile(
    r"(?:(?P<first>[a-z]{3})(?:-(?P<last>[a-z]{3}))?\s+)?(?P<begin>[0-2]?\d:[0-5]\d)\s*-\s*(?P<end>[0-2]?\d:[0-5]\d)"
)
_Matched = TypeVar("_Matched", list[str], list[WorkloadClass], dict[str, str])
LEAST_WINDOW_SECONDS = 600.0
"""The window of the verdicts: with a shorter one, an idle spell would be acted on as soon as it is seen."""


def _read_seconds(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) else value


def _read_days(match: re.Match[str]) -> frozenset[int]:
    if match["first"] is None:
        return frozenset(range(7))
    first, last = match["first"], match["last"] or match["first"]
    if first not in _DAYS or last not in _DAYS:
        raise InvalidSettingError(messages.NOT_POLICY_HOURS)
    begin, count = _DAYS.index(first), (_DAYS.index(last) - _DAYS.index(first)) % 7 + 1
    return frozenset((begin + number) % 7 for number in range(count))


def read_hours(text: str, zone: str) -> Hours | None:
    """`22:00-08:00` or `mon-fri 09:00-18:00`; None for an empty text. Raises InvalidSettingError."""
    if not text.strip():
        return None
    match = _HOURS.fullmatch(text.strip().lower())
    if match is None:
        raise InvalidSettingError(messages.NOT_POLICY_HOURS)
    try:
        begin, end = (time.fromisoformat(match[name].zfill(5)) for name in ("begin", "end"))
    except ValueError:
        raise InvalidSettingError(messages.NOT_POLICY_HOURS) from None
    return Hours(begin, end, zone, _read_days(match))


def _check_hours(text: str) -> str:
    """An empty one would be no limit at all: most often a template without its value."""
    if read_hours(text, "UTC") is None:
        raise InvalidSettingError(messages.NOT_POLICY_HOURS)
    return text


def _check_zone(name: str) -> str:
    read_zone(name)
    return name


def _read_classes(value: object) -> object:
    listed = split_list(value)
    return list(WorkloadClass) if listed == ["*"] else listed


def _check_match(value: _Matched) -> _Matched:
    """An empty one is most often a template without its value, and would match every workload."""
    if not value or (isinstance(value, list) and not all(each.strip() for each in value)):
        raise InvalidSettingError(messages.EMPTY_MATCH)
    return value


Seconds = Annotated[float, BeforeValidator(_read_seconds)]
HoursText = Annotated[str, AfterValidator(_check_hours)]
Patterns = Annotated[list[str], BeforeValidator(split_list), AfterValidator(_check_match)]
Labels = Annotated[dict[str, str], AfterValidator(_check_match)]
ActionName = Annotated[ReclaimAction, Field(strict=False)]  # strict: only a member of the enum, not its word
ClassName = Annotated[WorkloadClass, Field(strict=False)]
Classes = Annotated[list[ClassName], BeforeValidator(_read_classes), AfterValidator(_check_match)]


class Form(BaseModel):
    """A mapping of the policy file. A field of another type is refused, not converted: `warnings: "2"`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_nothing(cls, value: object) -> object:
        """`window:` without a value would count as left out."""
        if value is None:
            raise InvalidSettingError(messages.NO_VALUE)
        return value


class Match(Form):
    """Which workloads a policy is for. All fields that are set must match; of a list, one entry. Clusters, namespaces,
    kinds, models and priority classes may contain `*` and `?`. An empty field is refused: all is `"*"`, or the field
    left out."""

    clusters: Patterns = Field(default_factory=list, description="Names of clusters.")
    namespaces: Patterns = Field(default_factory=list, description="Namespaces, such as `team-*`.")
    labels: Labels = Field(
        default_factory=dict,
        description="Labels of the pods; the value may contain `*`, and `*` alone means any value.",
    )
    kinds: Patterns = Field(default_factory=list, description="Kinds of owners, such as Notebook or PyTorchJob.")
    models: Patterns = Field(default_factory=list, description="GPU models, such as `*H100*`.")
    classes: Classes = Field(
        default_factory=list,
        description="How the workload is used. interactive: notebooks, workspaces, bare pods. batch: jobs. serving: "
        "replicas that wait for requests.",
    )
    priority_classes: Patterns = Field(default_factory=list, description="Priority classes of the pods.")


class LimitFields(Form):
    """How many workloads are acted on at most. Budgets are shared by all workloads of the policy."""

    per_cycle: int = Field(default=5, ge=0, le=1000, description="In one cycle.")
    per_namespace: int = Field(default=2, ge=0, le=1000, description="In one namespace in one cycle.")
    per_hour: int = Field(default=20, ge=0, le=10_000, description="In one hour.")


class KeepFields(Form):
    """The pool rule: how many replicas stay. `careful` and `keen` are two sets of these numbers; left out, it is
    careful below 16 replicas, and keen from there on. What is left out of the numbers is that of careful."""

    window: Seconds = Field(
        default=CAREFUL.window_seconds,
        ge=LEAST_WINDOW_SECONDS,
        le=86_400,
        description="How far back the replicas are looked at that were active at once.",
    )
    quantile: float = Field(
        default=CAREFUL.quantile, ge=0.5, le=1, description="Of their number over the window; 1: the most."
    )
    headroom: float = Field(default=CAREFUL.headroom, ge=1.0, le=100, description="Factor on it.")
    recent: Seconds = Field(
        default=CAREFUL.recent_seconds,
        ge=0,
        le=86_400,
        description="At least the most that were active over this time stay, whatever the quantile is.",
    )
    patience: Seconds = Field(
        default=CAREFUL.patience_seconds,
        ge=0,
        le=3 * 3600,
        description="How long a replica must have been surplus without a break before it goes. What is missing comes "
        "back in the next cycle.",
    )


def make_rule(keep: KeepFields | None) -> KeepRule | None:
    """None: the default of the size of the pool."""
    return None if keep is None else KeepRule(keep.window, keep.quantile, keep.headroom, keep.recent, keep.patience)


def _read_keep(value: object) -> object:
    """The numbers of a set that is named."""
    if not isinstance(value, str):
        return value
    if value not in PRESETS:
        raise InvalidSettingError(messages.NOT_A_KEEP_RULE.fill(names=", ".join(PRESETS)))
    rule = PRESETS[value]
    return KeepFields(
        window=rule.window_seconds,
        quantile=rule.quantile,
        headroom=rule.headroom,
        recent=rule.recent_seconds,
        patience=rule.patience_seconds,
    )


class PolicyFields(Form):
    """What a policy sets. What it leaves out has the default of the class of the workload; the action is notify."""

    window: Seconds | None = Field(
        default=None,
        ge=LEAST_WINDOW_SECONDS,
        le=90 * 86_400,
        description="How long a workload must have been idle, such as `60m`, `5h`, `2d`: no activity on any of its "
        "GPUs, proven by signals that include all of the time.",
    )
    grace: Seconds | None = Field(
        default=None,
        ge=60,
        le=30 * 86_400,
        description="Time between the last warning and the action, in which the owner can answer.",
    )
    highest_chance: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Highest chance that work comes back within 30 minutes. Where the chance is unknown, nothing is "
        "done. 1: the chance does not matter.",
    )
    warnings: int | None = Field(
        default=None, ge=1, le=10, description="How many warnings are delivered; at least one."
    )
    warning_interval: Seconds | None = Field(
        default=None, ge=60, le=7 * 86_400, description="Time between two warnings."
    )
    action: ActionName | None = Field(
        default=None,
        description="notify, also if it is left out: tell the owner. webhook: call the control webhook. scale-to-keep: "
        "lower the replicas of a pool to those it needs. suspend: stop the workload in the way of its kind. evict: "
        "pods without an owner are evicted, after at least two warnings; nothing brings them back. All others stay.",
    )
    limits: LimitFields | None = Field(default=None, description="Budgets.")
    working_hours: HoursText | None = Field(
        default=None, description="Actions only within these hours, such as `mon-fri 09:00-18:00`."
    )
    quiet_hours: HoursText | None = Field(
        default=None, description="Neither warnings nor actions within these hours, such as `22:00-08:00`."
    )
    time_zone: Annotated[str, AfterValidator(_check_zone)] | None = Field(
        default=None, description="Time zone of the hours, such as Asia/Shanghai; UTC if not set."
    )
    on_pressure: bool | None = Field(
        default=None,
        description="Act only when a pending pod needs this kind of GPU, and the workloads that are idle for the "
        "longest time together satisfy it.",
    )
    interchangeable: bool | None = Field(
        default=None,
        description="The replicas of these workloads are interchangeable: any of them can serve any request. A person "
        "must say so, here or with the annotation gpusteward.io/interchangeable; otherwise scale-to-keep "
        "stays a notice.",
    )
    stops_other_pods: bool | None = Field(
        default=None,
        description="Pods without GPUs may be stopped as well, such as the head of a RayCluster or the driver of a "
        "JobSet: what they do is not in the verdict. Without it, an action that would stop such pods is refused, and "
        "the reason names them.",
    )
    no_requests_for: Seconds | None = Field(
        default=None,
        ge=LEAST_WINDOW_SECONDS,
        le=90 * 86_400,
        description="Of kinds that serve: a person's consent that so long without any request, proven by the counters "
        "of their inference servers, stands for the window, also where health checks keep the GPUs at work in less "
        "than 1 % of the time. Without such counters it does nothing, and the plan says so. Not for scale-to-keep.",
    )
    keep: Annotated[KeepFields, BeforeValidator(_read_keep)] | None = Field(
        default=None,
        description="The pool rule: `careful`, `keen`, or its numbers. Left out: careful below 16 replicas, keen from "
        "there on, counted before any were lowered. For scale-to-keep, in place of the window.",
    )
    longest_snooze: Seconds | None = Field(
        default=None, ge=3600, le=365 * 86_400, description="How long an owner may snooze a workload at most."
    )


class PolicyEntry(PolicyFields):
    """One policy; the first whose match fits a workload counts."""

    name: str = Field(
        min_length=1,
        max_length=63,
        pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
        description="Shown in plans, notices and the journal: lower case letters, digits and hyphens.",
    )
    match: Match = Field(default_factory=Match, description="Which workloads it is for; left out: all.")

    @field_validator("match", mode="before")
    @classmethod
    def _refuse_empty_match(cls, value: object) -> object:
        if value == {}:
            raise InvalidSettingError(messages.EMPTY_MATCH)
        return value

    @model_validator(mode="after")
    def _check_action(self) -> Self:
        if self.action in CHANGING_ACTIONS and self.limits is not None and not self.limits.per_cycle:
            raise InvalidSettingError(messages.NO_BUDGET)
        return self


class PolicyFile(Form):
    """The whole file: what no policy of it matches is at most notified."""

    policies: list[PolicyEntry] = Field(
        max_length=500, description="The first that matches a workload counts; `[]`: act on nothing."
    )

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        names = [policy.name for policy in self.policies]
        for name in names:
            if names.count(name) > 1:
                raise InvalidSettingError(messages.POLICY_TWICE, name=name)
        return self


NO_POLICIES = PolicyFile(policies=[])

DEFAULTS: Mapping[WorkloadClass, PolicyFields] = {
    # 60 + 30 minutes: on a trace of inference pods a fixed window of 90 minutes is regretted in 30 % of all cases, with
    # the chance as a brake in 7 %.
    WorkloadClass.INTERACTIVE: PolicyFields(
        window=3600, grace=1800, highest_chance=0.3, warnings=1, warning_interval=900
    ),
    # Jobs pause for data, evaluation and checkpoints: two thirds of idle periods lie within a job that goes on.
    WorkloadClass.BATCH: PolicyFields(
        window=5 * 3600, grace=3600, highest_chance=0.3, warnings=2, warning_interval=1800
    ),
    WorkloadClass.SERVING: PolicyFields(window=7200, grace=600, highest_chance=1.0, warnings=1, warning_interval=900),
}
"""What a policy leaves out, by the class of the workload. There is no default action but notify: only what a policy of
the file says is done."""


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
    model: type[BaseModel] = PolicyFile if not parents else _SECTIONS.get(parents[-1], PolicyEntry)
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
