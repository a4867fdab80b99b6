"""Renders deploy/manifests/ from the chart, for people who do not use helm: `make manifests`.

What only means something to helm (its labels, annotations and the name of a release) is left out. The dashboards are
large and stand in the chart already: a kustomization beside their files, since none may name files above its own
folder, makes the same ConfigMaps of them. A test fails when a file is stale.
"""

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from deploy.chart.value_comments import CHART

MANIFESTS = CHART.parents[1] / "manifests"
DASHBOARDS = CHART / "files/dashboards/kustomization.yaml"
VALUES = CHART.parent / "manifests-values.yaml"

HEADERS: Mapping[str, str] = {
    "agent": """\
# The gpusteward agent on every GPU node:   kubectl apply -f deploy/manifests/agent.yaml
#
# It reads NVML, /proc (hostPID), /sys/fs/cgroup, the kubelet's pod-resources socket and the pods of its own node, and
# writes nothing. The last object needs the Prometheus Operator; without it, this object is rejected and the rest works.
""",
    "analyzer": """\
# The gpusteward analyzer, one per cluster:   kubectl apply -f deploy/manifests/analyzer.yaml
#
# It reads Prometheus and the owners of pods, and writes only its ledger, in its own volume. Set prometheus.url below
# before you apply it; if it is empty, the analyzer finds and scrapes the agents itself. The namespace is created by
# deploy/manifests/agent.yaml. Secrets such as an API key are read from a Secret gpusteward-settings, whose keys are
# settings: ai.api_key, notify.channels, ledger.url. The last object needs the Prometheus Operator. The pod waits for
# the Secret with the tokens, of which Prometheus sends the viewer's:
#
#   token="$(openssl rand -hex 32)"
#   kubectl -n gpusteward create secret generic gpusteward-tokens \\
#     --from-literal=viewer="$token" --from-literal=tokens.yaml="viewer: $token"
""",
    "rules": """\
# Recording rules and alerts for the Prometheus Operator:   kubectl apply -f deploy/manifests/rules.yaml
""",
    "dashboards": """\
# Dashboards for the sidecar of Grafana:   kubectl apply --server-side -k deploy/chart/gpusteward/files/dashboards
""",
}
RENDERED = "# Rendered from deploy/chart/gpusteward by `make manifests`. Change the chart, not this file.\n"
NAMESPACE = """\
apiVersion: v1
kind: Namespace
metadata:
  name: gpusteward
  labels:
    app.kubernetes.io/name: gpusteward
    # The agent needs hostPID and hostPath mounts.
    pod-security.kubernetes.io/enforce: privileged
"""
HELM_ONLY = re.compile(
    r"^ *(app\.kubernetes\.io/(instance|managed-by)|helm\.sh/[a-z-]+):.*\n"
    r"|^# Source: .*\n|^ +# Written by .*\n|(?<=,)app\.kubernetes\.io/instance=gpusteward,"
    r'|, namespace=~"\(gpusteward\)\?"',  # the manifests may be put into another namespace
    re.MULTILINE,
)
EMPTY_ANNOTATIONS = re.compile(r"^  annotations:\n(?! {4})", re.MULTILINE)


def render(helm: Path) -> dict[Path, str]:
    """The text of each manifest by its file."""
    command = [helm, "template", "gpusteward", CHART, "--namespace", "gpusteward", "--values", VALUES, "--skip-tests"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603
    parts: dict[str, list[str]] = {name: [] for name in HEADERS}
    parts["agent"].append(NAMESPACE)
    for document in re.split(r"^---\n", text, flags=re.MULTILINE)[1:]:
        parts[_find_component(document)].append(_strip(document))
    texts = {name: "---\n".join(documents) for name, documents in parts.items() if name != "dashboards"}
    texts["dashboards"] = _kustomize(parts["dashboards"])
    files = {name: DASHBOARDS if name == "dashboards" else MANIFESTS / f"{name}.yaml" for name in HEADERS}
    return {files[name]: HEADERS[name] + RENDERED + texts[name] for name in HEADERS}


def _kustomize(documents: Sequence[str]) -> str:
    """A kustomization that makes these ConfigMaps of the files of which the chart makes them."""
    found = [yaml.safe_load(document) for document in documents]
    (about,) = {yaml.safe_dump({**each["metadata"], "name": ""}): each["metadata"] for each in found}.values()
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": about["namespace"],
        "generatorOptions": {
            "disableNameSuffixHash": True,
            "labels": about["labels"],
            "annotations": about["annotations"],
        },
        "configMapGenerator": [{"name": each["metadata"]["name"], "files": sorted(each["data"])} for each in found],
    }
    return yaml.safe_dump(kustomization, sort_keys=False)


def _find_component(document: str) -> str:
    found = re.search(r"^    app\.kubernetes\.io/component: (\S+)$", document, re.MULTILINE)
    assert found, document
    return found[1]


def _strip(document: str) -> str:
    return EMPTY_ANNOTATIONS.sub("", HELM_ONLY.sub("", document)).strip() + "\n"


def main() -> None:
    """Write every manifest."""
    root = CHART.parents[2]
    folder = subprocess.run([root / ".ci/helm"], capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
    for path, text in render(Path(folder) / "helm").items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
