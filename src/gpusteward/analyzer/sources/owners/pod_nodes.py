"""Whether a pod that metrics name without its uid can be the pod of this name in the API server: by its node.

Two clusters may have pods of the same name; a pod has one node for its whole life. How metrics name a node depends on
the exporter and the scrape job, so that only these are compared:

- a name: the same, or one is the other without its domain (`gpu-1`, `gpu-1.example.com`); a port is ignored;
- an address: the same as one of the node's. Another address may be that of the exporter's pod, or of a second network,
  and says nothing;
- a name that Kubernetes has generated for a pod (`dcgm-exporter-x7k2p`, without `NODE_NAME`) says nothing.
"""

import re
from collections.abc import Collection
from ipaddress import ip_address

_GENERATED = re.compile("-[bcdfghjklmnpqrstvwxz2456789]{5}$")
_PORT = re.compile(r"^(?:\[(?P<v6>.+)\]|(?P<host>[^:]+))(?::\d+)?$")


def is_on_node(reported: str, node: str, addresses: Collection[str]) -> bool | None:
    """Whether `reported` means this node, or one of these addresses; None: that cannot be told."""
    name, node = _without_port(reported).lower().rstrip("."), node.lower()
    if not name or not node:  # a pod without a node has not been scheduled yet
        return None
    if name == node or name in addresses:
        return True
    if is_address(name):
        return None
    if name.startswith(f"{node}.") or (node.startswith(f"{name}.") and not is_address(node)):
        return True
    return None if _GENERATED.search(name) else False


def is_address(reported: str) -> bool:
    """With or without a port."""
    try:
        ip_address(_without_port(reported))
    except ValueError:
        return False
    return True


def _without_port(reported: str) -> str:
    found = _PORT.match(reported)
    return found["v6"] or found["host"] if found else reported
