"""Workspace of Kubeflow Notebooks v2: suspended by `spec.paused`; `status.pauseTime` confirms it."""

from gpusteward.analyzer.reclaim.kinds.kind import Kind, patch_right
from gpusteward.messages import reclaim_kinds as messages

WORKSPACE = Kind(
    "kubeflow.org",
    "Workspace",
    {"/spec/paused": True},
    messages.LOST_NOTEBOOK,
    rights=(patch_right("kubeflow.org", "Workspace"),),
)
