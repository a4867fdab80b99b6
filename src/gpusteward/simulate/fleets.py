"""Ready-made nodes: one that shows everything, and clusters of many."""

from gpusteward.simulate.layouts import LAYOUTS, SHOWCASE, stand
from gpusteward.simulate.nodes import FIRST_PID, PIDS_PER_NODE, SimulatedNode
from gpusteward.simulate.noise import Chance

NODES_WITH_OWN_PIDS = 250
"""So many nodes have pids of their own below the kernel's limit of 4,194,304; later ones repeat them."""


def default_node(seed: int = 0, *, name: str = "simulated-node") -> SimulatedNode:
    """Eight GPUs with every sharing mode and every kind of workload at once."""
    chance = Chance(seed).child("default")
    _, site = stand(chance, chance, layout=SHOWCASE)
    return SimulatedNode(name, SHOWCASE.plan(site), model=site.model, seed=seed)


def fleet(nodes: int, seed: int = 0) -> list[SimulatedNode]:
    """A mixed cluster: ten kinds of nodes in turn, some applications spread over several of them."""
    return [_node(number, Chance(seed)) for number in range(nodes)]


def _node(number: int, chance: Chance) -> SimulatedNode:
    group, place = divmod(number, len(LAYOUTS))
    layout = LAYOUTS[place]
    short, site = stand(chance.child("node", number), chance.child("group", group), layout=layout)
    return SimulatedNode(
        f"{short}-{number:03d}",
        layout.plan(site),
        model=site.model,
        seed=site.chance.seed,
        first_pid=FIRST_PID + number % NODES_WITH_OWN_PIDS * PIDS_PER_NODE,
    )
