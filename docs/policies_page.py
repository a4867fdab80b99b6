"""The reference page of policies, generated from their models."""

from collections.abc import Iterator, Sequence

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from docs.tables import code, make_page, make_table
from gpusteward.analyzer.reclaim.policies.example import EXAMPLE
from gpusteward.analyzer.reclaim.policies.file import (
    DEFAULTS,
    KeepFields,
    LimitFields,
    Match,
    PolicyEntry,
    PolicyFields,
)
from gpusteward.analyzer.reclaim.policies.policy import ANNOTATIONS
from gpusteward.core.kinds import POOL_KINDS, WorkloadClass, list_names

_TIMES = ("window", "grace", "warning_interval", "longest_snooze")


def write_policies_page() -> str:
    return make_page(
        "Policies",
        "`reclaim.policy_file` names a YAML file with the key `policies`: a list, of which the first policy that "
        "matches a workload counts. The file is the whole truth: what no policy of it matches is at most notified, and "
        "acting on nothing is written `policies: []`. Times are written as `90s`, `60m`, `5h` or `2d`. How to try a "
        "file before it acts: [policies](../how-to/policies.md).",
        "The file is read again when it changes. While it is missing, empty or invalid, at the start or later, the "
        "program runs, and nothing new is warned of or done; what was suspended can still be restored. The error with "
        "its line is in the log, `gpusteward plan`, `gpusteward doctor`, `/api/v1/policies`, `/api/v1/health`, the web "
        "UI and the alert [GpustewardPoliciesRefused](../runbooks.md#gpustewardpoliciesrefused). A field that is not "
        "known, has no value or has a value of another type is such an error.",
        "## A policy",
        _field_table(PolicyEntry),
        "## match",
        str(Match.__doc__).replace("\n    ", " "),
        _field_table(Match),
        "## limits",
        _field_table(LimitFields),
        "## keep",
        str(KeepFields.__doc__),
        f"Only for {', '.join(POOL_KINDS)}, and only where somebody said that the replicas are interchangeable.",
        _field_table(KeepFields),
        "## Defaults",
        "What a policy leaves out depends on the class of the workload. There is no default for `action`: without it a "
        "policy notifies.",
        make_table(("field", *(each.value for each in DEFAULTS)), _list_defaults()),
        "Classes follow from the kind of the owner; a kind that is not listed counts as batch.",
        make_table(("class", "kinds"), ((each.value, ", ".join(list_names(each))) for each in WorkloadClass)),
        "## Example",
        "`gpusteward policies --example` prints it; `gpusteward replay --example` shows what it would have done here; "
        "the chart uses it with `reclaim.examplePolicies: true`.",
        f"```yaml\n{EXAMPLE}```",
        "## Annotations",
        "On the workload, its pods or the namespace; the nearest wins. They can only make a policy more careful: "
        "others are ignored, and `gpusteward plan` says so. A value that cannot be read is taken for the most "
        "careful one.",
        make_table(("annotation", "value"), ((f"`{name}`", about.en) for name, about in ANNOTATIONS.items())),
    )


def _field_table(model: type[BaseModel]) -> str:
    return make_table(
        ("field", "default", "description"),
        ((f"`{name}`", _default(field), str(field.description)) for name, field in model.model_fields.items()),
    )


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    return "" if value is None or value in ([], {}) or isinstance(value, BaseModel) else code([_show(value)])


def _list_defaults() -> Iterator[Sequence[str]]:
    for name in PolicyFields.model_fields:
        values = [getattr(fields, name) for fields in DEFAULTS.values()]
        if any(value is not None for value in values) and not any(isinstance(each, BaseModel) for each in values):
            yield f"`{name}`", *(_show(_time(name, value)) for value in values)
    yield "`keep`", *("careful or keen" if each is WorkloadClass.SERVING else "" for each in DEFAULTS)


def _time(name: str, value: object) -> object:
    if name not in _TIMES or not isinstance(value, float | int):
        return value
    return f"{value / 3600:g}h" if value >= 3600 else f"{value / 60:g}m"


def _show(value: object) -> str:
    return "" if value is None else str(value)
