"""`python -m bench.rehearsal_nodes NODES SEED`: the agents of a simulated cluster in one process; prints its port.

A node is a path: /h100-000/metrics. Every page is rendered when it is requested, in the agent's dialects `dcgm` and
`native`, and packed as the agent packs it.
"""

import asyncio
import gzip
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpusteward.local.simulated_fleet import NodeServer
from gpusteward.simulate.assembly import GpuPlan
from gpusteward.simulate.fleets import LAYOUTS, NODES_WITH_OWN_PIDS, create_context
from gpusteward.simulate.nodes import FIRST_PID, PIDS_PER_NODE, SimulatedNode
from gpusteward.simulate.seeded_random import SeededRandom

GPUS_PER_NODE = 8
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"


def create_nodes(count: int, seed: int) -> list[SimulatedNode]:
    """Nodes of eight GPUs each: the demo's layouts in turn, the small ones repeated with other applications."""
    return [_create_node(number, SeededRandom(seed)) for number in range(count)]


def _create_node(number: int, random: SeededRandom) -> SimulatedNode:
    group, index = divmod(number, len(LAYOUTS))
    layout, own = LAYOUTS[index], random.child("node", number)
    short, context = create_context(own, random.child("group", group), layout=layout)
    plans: list[GpuPlan] = []
    while len(plans) < GPUS_PER_NODE:
        plans += layout.plan(replace(context, random=own.child("gpus from", len(plans))))
    return SimulatedNode(
        f"{short}-{number:05d}",
        plans[:GPUS_PER_NODE],
        model=context.model,
        seed=own.seed,
        first_pid=FIRST_PID + number % NODES_WITH_OWN_PIDS * PIDS_PER_NODE,
    )


class Connection(asyncio.Protocol):
    """One connection of a scraper."""

    def __init__(self, servers: Mapping[str, NodeServer]) -> None:
        self._servers = servers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """A request fits into one packet; only its path matters."""
        page = self._servers[data.split(b"/", 2)[1].decode()].render_metrics(time.time())
        packed = gzip.compress(page, compresslevel=1, mtime=0)
        self._transport.write(_HEAD % len(packed) + packed)


async def serve(nodes: Sequence[SimulatedNode]) -> None:
    servers = {node.name: NodeServer(node) for node in nodes}
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(servers), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(create_nodes(int(sys.argv[1]), int(sys.argv[2]))))
