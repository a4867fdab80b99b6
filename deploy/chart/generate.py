"""Writes what the chart has from values.yaml and from the code: `make chart`.

README.md and values.schema.json come from values.yaml and its comments; the analyzer's settings in the schema, the list
of settings that are secrets, and the rights to read owners of pods come from the code. A test fails when a file is
stale.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

import yaml
from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from deploy.chart.readme import write_readme
from deploy.chart.value_comments import CHART, Value, read_values, walk
from gpusteward.analyzer.reclaim.kinds.rights import OBSERVE_RIGHTS, OWN_NAMESPACE_RIGHTS, Right, list_enforce_rights
from gpusteward.analyzer.reclaim.policies.example import EXAMPLE
from gpusteward.analyzer.settings.effective import KNOWN
from gpusteward.analyzer.settings.fields import find_secret_files, is_secret
from gpusteward.analyzer.sources.offered_gpus import LISTED
from gpusteward.core.kinds import OWNERS

Json = dict[str, Any]

NOTICE = "# Written by `make chart`. Change the code, not this file.\n"
SECRETS = tuple(path for path, field in KNOWN.items() if is_secret(field))
SECRET_FILES = find_secret_files(KNOWN)
OBJECT: Json = {"type": "object", "additionalProperties": False}

DEFINITIONS: Mapping[str, Json] = {
    "strings": {"type": "object", "additionalProperties": {"type": "string"}},
    "labels": {
        "type": "object",
        "propertyNames": {"pattern": r"^([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$"},
        "additionalProperties": {
            "type": "string",
            "pattern": r"^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$",
        },
    },
    "objects": {"type": "array", "items": {"type": "object"}},
    "pullSecrets": {"type": "array", "items": {"type": ["string", "object"]}},
    "affinity": {
        **OBJECT,
        "properties": {name: {"type": "object"} for name in ("nodeAffinity", "podAffinity", "podAntiAffinity")},
    },
    "tolerations": {
        "type": "array",
        "items": {
            **OBJECT,
            "properties": {
                "key": {"type": "string"},
                "operator": {"enum": ["Exists", "Equal"]},
                "value": {"type": "string"},
                "effect": {"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
                "tolerationSeconds": {"type": "integer"},
            },
        },
    },
    "environment": {
        "type": "array",
        "items": {
            **OBJECT,
            "required": ["name"],
            "properties": {"name": {"type": "string"}, "value": {"type": "string"}, "valueFrom": {"type": "object"}},
        },
    },
    "resources": {
        **OBJECT,
        "properties": {
            "requests": {"$ref": "#/definitions/quantities"},
            "limits": {"$ref": "#/definitions/quantities"},
            "claims": {"type": "array", "items": {"type": "object"}},
        },
    },
    "quantities": {"type": "object", "additionalProperties": {"type": ["string", "number"]}},
}
TYPES: Mapping[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}


def write_schema() -> str:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart gpusteward",
        **_describe_section(read_values()),
        "definitions": DEFINITIONS,
    }
    properties = schema["properties"]
    properties["serviceMonitor"]["properties"]["apiVersion"] = {"type": "string"}
    for path in yaml.safe_load((CHART / "files/dcgm-exporter-values.yaml").read_text(encoding="utf-8")):
        _let_through(properties["agent"], path.split("."))
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _let_through(section: Json, path: Sequence[str]) -> None:
    """Any value there: a template refuses it, and says what to do instead."""
    for key in path[:-1]:
        section = section["properties"][key]
    section["properties"][path[-1]] = {}


def _describe_section(values: Mapping[str, Value]) -> Json:
    return {**OBJECT, "properties": {key: _describe_value(value) for key, value in values.items()}}


def _describe_value(value: Value) -> Json:
    about: Json = {"description": value.description} if value.description else {}
    extra = dict(value.schema)
    if "$ref" in extra:  # beside $ref other keywords are ignored
        return {"$ref": f"#/definitions/{extra['$ref']}"}
    if extra.pop("settings", False):
        return about | _describe_settings()
    if "secretSettings" in extra:
        return about | {**OBJECT, "properties": dict.fromkeys(SECRETS, extra["secretSettings"])}
    if value.children:
        return about | _describe_section(value.children) | extra
    if "enum" in extra or "type" in extra:
        return about | extra
    kind = "number" if "minimum" in extra and isinstance(extra["minimum"], float) else TYPES[type(value.default)]
    return about | {"type": kind} | extra


def _describe_settings() -> Json:
    """`analyzer.config`: every setting of the analyzer. What is a secret is refused by a template, which says why."""
    tree: Json = {**OBJECT, "properties": {}}
    for path, field in KNOWN.items():
        *sections, key = path.split(".")
        branch = tree
        for section in sections:
            branch = branch["properties"].setdefault(section, {**OBJECT, "properties": {}})
        branch["properties"][key] = {} if is_secret(field) else _describe_setting(field)
        if f"{path}_file" in SECRET_FILES:
            branch["properties"][f"{key}_file"] = {}
    return tree


def _describe_setting(field: FieldInfo) -> Json:
    """Type and bounds of switches, numbers and choices; everything else the analyzer checks at its start."""
    kind: Any = Annotated[field.annotation, field]
    schema = TypeAdapter(kind).json_schema()
    if schema.get("type") not in ("boolean", "integer", "number") and "enum" not in schema:
        return {}
    return {key: part for key, part in schema.items() if key not in ("default", "title", "description")}


def write_observe_rules() -> str:
    """What the analyzer may read: pods, the owners that the code knows, and nodes."""
    owners = [Right(kind.group, kind.plural, ("get",)) for kind in OWNERS]
    pods = Right("", "pods", ("get", "list"))
    listed = [
        f"- apiGroups: [{group or json.dumps('')}]\n  resources: [{name}]\n  verbs: [list]\n" for group, name in LISTED
    ]
    about = (
        "# Pods and their owners. A kind that the cluster does not have does no harm. Pods are listed for their uids,\n"
        "# where metrics do not name them (dcgm-exporter).\n"
    )
    nodes = "# Which nodes offer GPUs, compared with those that report; resourceslices while no exporter reports one.\n"
    cluster = (
        "# The uid of the cluster: which actions in the ledger are its own, also while reclaim is off.\n"
        '- apiGroups: [""]\n  resources: [namespaces]\n  resourceNames: [kube-system]\n  verbs: [get]\n'
    )
    return NOTICE + about + _write_rules([pods]) + _write_rules(owners) + cluster + nodes + "".join(listed)


def write_plan_rules() -> str:
    """What reclaim reads, beyond pods and their owners."""
    about = "# What reclaim reads, beyond pods and their owners.\n"
    return NOTICE + about + _write_rules(OBSERVE_RIGHTS)


def write_enforce_rules() -> str:
    """What reclaim changes, kind by kind."""
    about = (
        "# Beyond reading: what reclaiming idle GPUs changes. Objects are patched, never deleted; "
        "pods are evicted, never deleted.\n"
    )
    return NOTICE + about + _write_rules(list_enforce_rights())


def write_lease_rules() -> str:
    """In the analyzer's own namespace."""
    about = "# The Lease that decides which analyzer acts; in the analyzer's own namespace.\n"
    return NOTICE + about + _write_rules(OWN_NAMESPACE_RIGHTS)


def _write_rules(rights: Iterable[Right]) -> str:
    """Resources of one group with the same verbs are one rule. Sorted: the order of the code changes no file."""
    rules: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for right in rights:
        rules.setdefault((right.group, right.verbs), []).append(right.resource)
    return "".join(
        f"- apiGroups: [{group or json.dumps('')}]\n  resources: [{', '.join(sorted(resources))}]\n"
        f"  verbs: [{', '.join(verbs)}]\n"
        for (group, verbs), resources in sorted(rules.items())
    )


def write_settings() -> str:
    """Lists that templates need."""
    sections = [path for path, value in walk(read_values()) if value.children]
    return (
        NOTICE
        + "# The analyzer's settings that are secrets.\nsecrets:\n"
        + "".join(f"  - {each}\n" for each in SECRETS)
        + "# Values that have values below them.\nsections:\n"
        + "".join(f"  - {each}\n" for each in sections)
    )


FILES: Mapping[str, Callable[[], str]] = {
    "README.md": write_readme,
    "values.schema.json": write_schema,
    "files/rbac/observe.yaml": write_observe_rules,
    "files/rbac/plan.yaml": write_plan_rules,
    "files/rbac/enforce.yaml": write_enforce_rules,
    "files/rbac/lease.yaml": write_lease_rules,
    "files/settings.yaml": write_settings,
    "files/example-policies.yaml": lambda: NOTICE + EXAMPLE,
}


def main() -> None:
    """Write every file."""
    for name, write in FILES.items():
        (CHART / name).write_text(write(), encoding="utf-8")


if __name__ == "__main__":
    main()
