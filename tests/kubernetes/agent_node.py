"""A node of the real cluster with the service account of an agent on it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gpusteward.agent.kubernetes.pod_watch import Backoff, PodWatch
from gpusteward.kubernetes.api import ApiServer
from tests.kubernetes.cluster import Account, Cluster, Json, pod

# The agent's command; the folder of its service account, which is a fixed one in a pod, is the next argument.
COMMAND = (
    sys.executable,
    "-c",
    "import sys\nfrom pathlib import Path\nfrom gpusteward.agent import app\n"
    "app.SERVICE_ACCOUNT = Path(sys.argv.pop(1))\n"
    "from gpusteward.cli.main import main\nsys.exit(main(sys.argv[1:]))",
)
MANIFEST = Path(__file__).parents[2] / "deploy/manifests/agent.yaml"


def read_rules() -> list[Json]:
    """The RBAC rules of the shipped manifest."""
    objects = yaml.safe_load_all(MANIFEST.read_text())
    return next(list(each["rules"]) for each in objects if each["kind"] == "ClusterRole")


@dataclass(frozen=True)
class AgentNode:
    """A node, a namespace with its pods, and the account of the agent."""

    cluster: Cluster
    name: str
    namespace: str
    account: Account

    @classmethod
    def create(cls, cluster: Cluster, *, is_managed: bool = True) -> "AgentNode":
        namespace = cluster.add_namespace("ml")
        account = cluster.add_account(namespace, read_rules())
        return cls(cluster, cluster.add_node(is_managed=is_managed), namespace, account)

    def add(self, name: str, *, containers: tuple[str, ...] = ("main",), **metadata: Any) -> Json:
        """A pod on this node; its uid and all else as the server gave it."""
        item = pod(name, self.namespace, node=self.name, **metadata)
        item["spec"]["containers"] = [{"name": each, "image": "cuda"} for each in containers]
        return self.cluster.apply(item)[0]

    @property
    def command(self) -> tuple[str, ...]:
        """The agent as a process on this node, with its account."""
        return (*COMMAND, str(self.account.folder))

    @property
    def flags(self) -> tuple[str, ...]:
        return ("--kubernetes=true", f"--kubernetes-api={self.cluster.url}", f"--node-name={self.name}")

    @property
    def watches(self) -> int:
        """How many watches the agent has opened so far, over all API servers."""
        events = self.cluster.read_audit(self.account.user)
        return sum(event["verb"] == "watch" and event["stage"] == "ResponseStarted" for event in events)

    @property
    def lists(self) -> int:
        return sum(event["verb"] == "list" for event in self.cluster.read_audit(self.account.user))

    @contextmanager
    def watch(
        self,
        *patterns: str,
        api: ApiServer | None = None,
        backoff: Backoff | None = None,
        resource_version: str = "",
    ) -> Iterator[PodWatch]:
        """The agent's watch on the pods of this node, running."""
        watch = PodWatch(
            api or self.cluster.connect(self.account),
            self.name,
            label_patterns=patterns,
            backoff=backoff or Backoff(first_seconds=0.005, longest_seconds=0.02),
        )
        watch.resource_version = resource_version
        watch.start()
        try:
            yield watch
        finally:
            watch.stop()
