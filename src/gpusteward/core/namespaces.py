"""Which namespaces a person may see."""

import hashlib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import NamedTuple

from gpusteward.core.node.containers import WorkloadKey


class NamespacePattern(NamedTuple):
    """Namespaces of clusters, by name or by a pattern with `*` and `?`."""

    namespace: str
    cluster: str = "*"

    def matches(self, cluster: str, namespace: str) -> bool:
        return fnmatchcase(namespace, self.namespace) and fnmatchcase(cluster, self.cluster)


@dataclass(frozen=True)
class VisibleNamespaces:
    """The namespaces that match one of the patterns. What belongs to no namespace is not visible."""

    patterns: frozenset[NamespacePattern]

    def includes(self, cluster: str, namespace: str) -> bool:
        return bool(namespace) and any(each.matches(cluster, namespace) for each in self.patterns)

    @property
    def names(self) -> list[str]:
        """As people read them: `vision-*`, or `prod/vision-*` in some clusters only."""
        return sorted(
            each.namespace if each.cluster == "*" else f"{each.cluster}/{each.namespace}" for each in self.patterns
        )

    @cached_property
    def fingerprint(self) -> str:
        """The same for the same patterns, also after a restart."""
        return hashlib.blake2b(repr(sorted(self.patterns)).encode(), digest_size=6).hexdigest()


def sees(visible: VisibleNamespaces | None, workload: WorkloadKey) -> bool:
    """Whether somebody who sees these namespaces sees the workload; None: everything."""
    return visible is None or visible.includes(workload.cluster, workload.namespace)


def see_namespaces(patterns: frozenset[NamespacePattern]) -> VisibleNamespaces | None:
    """None: everything, also what belongs to no namespace."""
    return None if NamespacePattern("*", "*") in patterns else VisibleNamespaces(patterns)
