"""Simulated GPU nodes: workloads with known behaviour produce snapshots.

    fleets.py         `default_node` and `fleet`: ready-made nodes, one layout per sharing mode
    nodes.py          `SimulatedNode`: the state of a node at any moment as a `Snapshot`
    assembly.py       plans -> devices with placements
    devices.py        GPUs, MIG instances and the placements of applications on them; energy and power
    readings.py       a device at a moment as signals, as its model would report them
    applications.py   deployed applications and their pods
    workloads.py      kinds of workloads: when each is busy, what it does to a GPU, how much memory it holds
    load_curves.py    busy seconds as closed functions of time, with exact integrals
    ground_truth.py   what each workload really did, to check verdicts against
    loads.py          loads started by hand on a simulated GPU
    models.py         GPU models: memory, power, clocks, supported signals
    seeded_random.py  reproducible random values from a seed and names or moments

Everything is a function of the seed and the moment: no state, no clock, no file, no socket. Only `core` is imported.
"""
