"""Which node a target may report: its own. Lines about other nodes are refused, because whoever runs one exporter could
otherwise make the GPUs of every node look idle.

The API server knows the node of a pod. A target of a file with the label `node` is on that node, whatever its page
calls it. Any other target has the node that it names first; that must not be the host name of another target. A target
that reports several nodes by design, such as HAMi's scheduler, is named in `scrape.any_node_targets`.

A target that reports the GPU of another node under its own name makes that GPU unknown: two nodes report it.
"""

from collections.abc import Collection


class ReportedNode:
    """The node of one target."""

    def __init__(
        self,
        node: str = "",
        *,
        pod: str = "",
        host: str = "",
        hosts: Collection[str] = (),
        is_renamed: bool = False,
        may_be_any: bool = False,
    ) -> None:
        """`pod`: dcgm-exporter writes the name of its own pod where it does not know the node. `host`: the host name of
        the target, `hosts`: those of all targets. `is_renamed`: `node` replaces whatever the target calls it."""
        self._known = node
        self._pod = pod
        self._host = host
        self._hosts = hosts
        self._is_renamed = is_renamed
        self._may_be_any = may_be_any
        self.node = node  # empty: not known yet

    @property
    def is_only(self) -> bool:
        """Whether the target may report one node only."""
        return not self._may_be_any

    def admit(self, said: str) -> str | None:
        """The node to use for a line that names this one; None if the target may not speak for it."""
        if self._may_be_any:
            return said
        if not said or self._is_renamed:
            return self._known
        if not self.node and not self._is_of_another_target(said):
            self.node = said
        return self.node if self.admits(said) else None

    def admits(self, said: str) -> bool:
        """Whether a line with this node label may be used."""
        if self._may_be_any or self._is_renamed:
            return True
        return said in ("", self.node, self._pod) or _is_same_host(said, self.node)

    def forget(self) -> None:
        """The target has nothing left of the node that it named: it may have been renamed."""
        self.node = self._known

    def _is_of_another_target(self, said: str) -> bool:
        is_host = said in self._hosts or said.partition(".")[0] in self._hosts
        return is_host and not _is_same_host(said, self._host)


def _is_same_host(first: str, second: str) -> bool:
    """A host name with and without its domain. The parts of an IP address are not names."""
    if first == second:
        return True
    short, long = sorted((first, second), key=len)
    return bool(short) and not short.isdecimal() and "." not in short and long.startswith(f"{short}.")
