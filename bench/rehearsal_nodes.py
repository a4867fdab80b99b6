"""`python -m bench.rehearsal_nodes NODES SEED`: the agents of a simulated cluster in one process; prints its port.

A node is a path: /h100-000/metrics. Every page is rendered when it is requested, in the agent's dialects `dcgm` and
`native`, and packed as the agent packs it.
"""

import asyncio
import gzip
import sys
import time
from dataclasses import replace

from bench.programs import serve_pages
from gpusteward.local.simulated_fleet import NodeServer
from gpusteward.simulate.assembly import GpuPlan
from gpusteward.simulate.fleets import LAYOUTS, NODES_WITH_OWN_PIDS, create_context
from gpusteward.simulate.nodes import FIRST_PID, PIDS_PER_NODE, SimulatedNode
from gpusteward.simulate.seeded_random import SeededRandom

GPUS_PER_NODE = 8


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


def main() -> None:
    servers = {node.name: NodeServer(node) for node in create_nodes(int(sys.argv[1]), int(sys.argv[2]))}

    def render(node: str) -> bytes:
        return gzip.compress(servers[node].render_metrics(time.time()), compresslevel=1, mtime=0)

    asyncio.run(serve_pages(render))


if __name__ == "__main__":
    main()
