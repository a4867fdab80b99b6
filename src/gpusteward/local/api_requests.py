"""Requests to the simulated API server: what a path names, and the real server's checks and errors (pure)."""

import copy
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

from gpusteward.analyzer.reclaim.kinds.objects import Json
from gpusteward.local.cluster_objects import RESOURCES, ObjectKey, Resource

MERGE_PATCH = "application/merge-patch+json"
_BY_PATH: Mapping[tuple[str, str], Resource] = {(each.version, each.plural): each for each in RESOURCES}
_IMMUTABLE = ("uid", "name", "namespace", "creationTimestamp")


class ApiRequest(NamedTuple):
    """A request to the API server."""

    method: str
    target: str  # path and query
    body: bytes = b""
    content_type: str = "application/json"


class ApiResponse(NamedTuple):
    """A status and a JSON object as text."""

    status: HTTPStatus
    body: bytes


class JsonResponse(NamedTuple):
    """A response whose object others may still change."""

    status: HTTPStatus
    body: Json


class ResourcePath(NamedTuple):
    """What a path names; without a name all objects of a kind, in one namespace or in all."""

    resource: Resource
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.resource.kind, self.namespace, self.name)


class RefusedError(Exception):
    """The request is answered with a Status."""

    def __init__(
        self, status: HTTPStatus, reason: str, message: str, *, field: str = "", of: ResourcePath | None = None
    ) -> None:
        """`of`: the object that it is about."""
        super().__init__(message)
        details: Json = {"name": of.name, "kind": of.resource.plural} if of else {}
        if field:
            details["causes"] = [{"reason": "FieldValueInvalid", "field": field, "message": message}]
        body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
        self.answer = JsonResponse(status, {**body, "reason": reason, "code": int(status), "details": details})


def parse_path(path: str) -> ResourcePath:
    """Raises RefusedError."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) > 2:
        version, rest = parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        version, rest = f"{parts[1]}/{parts[2]}", parts[3:]
    else:
        raise _not_found()
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    resource = _BY_PATH.get((version, rest[0]))
    if resource is None or len(rest) > 3:
        raise _not_found()
    name, subresource = (*rest[1:], "", "")[:2]
    if name and bool(namespace) is not resource.is_namespaced:
        raise _not_found()
    return ResourcePath(resource, namespace, name, subresource)


def _not_found() -> RefusedError:
    return RefusedError(HTTPStatus.NOT_FOUND, "NotFound", "the server could not find the requested resource")


def read_dry_run(query: Mapping[str, str]) -> bool:
    """Raises RefusedError."""
    value = query.get("dryRun", "")
    if value not in ("", "All"):
        message = f'Invalid value: "{value}": unsupported value; supported: All'
        raise RefusedError(HTTPStatus.BAD_REQUEST, "BadRequest", message)
    return bool(value)


def decode_object(body: bytes) -> Json:
    """Raises RefusedError."""
    try:
        return msgspec.json.decode(body, type=Json)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "BadRequest", f"invalid JSON: {error}") from error


def check_preconditions(place: ResourcePath, before: Json, wanted: Json) -> None:
    """As the real one does for a patch of an object. Raises RefusedError."""
    metadata, what = before["metadata"], f'{place.resource.plural} "{place.name}"'
    if wanted.get("resourceVersion") not in (None, metadata["resourceVersion"]):
        message = (
            f"Operation cannot be fulfilled on {what}: the object has been modified; please apply your changes to "
            "the latest version and try again"
        )
        raise RefusedError(HTTPStatus.CONFLICT, "Conflict", message)
    for name in _IMMUTABLE:
        if name in wanted and wanted[name] != metadata.get(name):
            message = f'{what} is invalid: metadata.{name}: Invalid value: "{wanted[name]}": field is immutable'
            raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", message, field=f"metadata.{name}")


def merge(before: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = copy.deepcopy(before) if isinstance(before, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def is_selected(one: Json, query: Mapping[str, str]) -> bool:
    """Whether it has the labels and fields that a list asks for."""
    labels = one["metadata"].get("labels") or {}
    for term in filter(None, query.get("labelSelector", "").split(",")):
        name, _, value = term.replace("==", "=").partition("=")
        if (labels.get(name) != value) if "=" in term else (name not in labels):
            return False
    for term in filter(None, query.get("fieldSelector", "").split(",")):
        path, _, value = term.replace("==", "=").partition("=")
        found: Any = one
        for part in path.split("."):
            found = found.get(part, "") if isinstance(found, dict) else ""
        if found != value:
            return False
    return True
