"""Service accounts and roles of an installation."""

from tests.kubernetes.cluster import RBAC, Json

REACH = [
    {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list"]},
    {
        "apiGroups": [""],
        "resources": ["services/proxy"],
        "resourceNames": ["http:gpusteward-analyzer:http", "https:gpusteward-analyzer:http"],
        "verbs": ["get"],
    },
]


def _token(name: str) -> Json:
    return {"apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": [name], "verbs": ["create"]}


def _role(name: str, *rules: Json) -> Json:
    return {"apiVersion": RBAC, "kind": "Role", "metadata": {"name": name}, "rules": [*REACH, *rules]}


ROLE_OBJECTS: list[Json] = [
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "gpusteward-viewer"}},
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "gpusteward-operator"}},
    _role("gpusteward-kubectl"),
    _role("gpusteward-viewer", _token("gpusteward-viewer")),
    _role("gpusteward-operator", _token("gpusteward-viewer"), _token("gpusteward-operator")),
]
