"""An object of Kubernetes as it was read, and its fields by JSON pointer (pure)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from gpusteward.kubernetes.api import make_path, parse_time
from gpusteward.kubernetes.owners import Reference

Json = dict[str, Any]
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
DOMAIN = "gpusteward.io/"
ACTION = f"{DOMAIN}action"
"""Annotation with the id of the action that has changed an object."""


@dataclass(frozen=True)
class KubeObject:
    """One object. `version`: with its group, as in `apps/v1`."""

    version: str
    kind: str
    json: Json

    @property
    def group(self) -> str:
        return self.version.rpartition("/")[0]

    @property
    def metadata(self) -> Json:
        return self.json.get("metadata") or {}

    @property
    def namespace(self) -> str:
        return str(self.metadata.get("namespace", ""))

    @property
    def name(self) -> str:
        return str(self.metadata.get("name", ""))

    @property
    def uid(self) -> str:
        return str(self.metadata.get("uid", ""))

    @property
    def resource_version(self) -> str:
        return str(self.metadata.get("resourceVersion", ""))

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metadata.get("labels") or {}

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.metadata.get("annotations") or {}

    @property
    def spec(self) -> Json:
        return self.json.get("spec") or {}

    @property
    def status(self) -> Json:
        return self.json.get("status") or {}

    @property
    def owners(self) -> Iterable[Json]:
        return self.metadata.get("ownerReferences") or ()

    @property
    def controller(self) -> Reference | None:
        """The owner reference of its controller."""
        found = next((each for each in self.owners if each.get("controller") and each.get("name")), None)
        return None if found is None else msgspec.convert(found, Reference)

    @property
    def started_at(self) -> float | None:
        """When a pod started, in unix seconds; None: not known."""
        return parse_time(str(self.status.get("startTime") or ""))

    @property
    def is_deleted(self) -> bool:
        """Its deletion has begun."""
        return bool(self.metadata.get("deletionTimestamp"))

    @property
    def path(self) -> str:
        return make_path(self.version, self.kind, self.namespace, self.name)

    def read(self, pointer: str) -> Any:
        """The value of a field; None if it is absent."""
        return read_pointer(self.json, pointer)

    def has_condition(self, *types: str) -> bool:
        """Whether one of these conditions is true."""
        conditions = self.status.get("conditions") or ()
        return any(each.get("type") in types and each.get("status") == "True" for each in conditions)


def annotation(name: str) -> str:
    """The JSON pointer of an annotation."""
    return f"/metadata/annotations/{name.replace('~', '~0').replace('/', '~1')}"


def split_pointer(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def read_pointer(json: Json, pointer: str) -> Any:
    """None if the field, or an object above it, is absent."""
    value: Any = json
    for part in split_pointer(pointer):
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value


def keep_original(json: Json, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The values before these fields are set, by JSON pointer. Where an object above a field does not exist, it is
    created with the field: then this object is what was absent."""
    return {_find_absent(json, pointer): read_pointer(json, pointer) for pointer in fields}


def _find_absent(json: Json, pointer: str) -> str:
    parts = pointer.split("/")
    for end in range(3, len(parts)):  # `metadata` and `spec` themselves always exist
        above = "/".join(parts[:end])
        if read_pointer(json, above) is None and not above.startswith("/metadata"):
            return above
    return pointer


def make_patch(fields: Mapping[str, Any]) -> Json:
    """A merge patch that sets these fields; None removes one."""
    patch: Json = {}
    for pointer, value in fields.items():
        *above, last = split_pointer(pointer)
        place = patch
        for part in above:
            place = place.setdefault(part, {})
        place[last] = value
    return patch
