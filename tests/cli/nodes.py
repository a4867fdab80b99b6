"""Responses of an agent for a simulated node at a fixed time."""

from typing import Any

import msgspec

from gpusteward.core.node.snapshots import Snapshot
from gpusteward.simulate.fleets import default_node
from tests.agent.http.clients import FakeContent

AT = 1_800_000_000.0


def make_snapshot(at: float = AT) -> Snapshot:
    return default_node(3, name="gpu-box").snapshot(at)


class SnapshotPages(FakeContent):
    def __init__(self, snapshot: Snapshot | dict[str, Any] | None = None, **faults: Any) -> None:
        super().__init__(**faults)
        self.body = msgspec.json.encode(snapshot or make_snapshot())

    def snapshot(self) -> bytes:
        return self.body
