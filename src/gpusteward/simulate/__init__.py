"""GPUs that do not exist: nodes whose workloads yield snapshots, with a known truth.

    models.py        real GPU models: memory, power, clocks, what they can report
    noise.py         chance that needs no memory: hashes of (seed, name) and of (seed, moment)
    courses.py       work as closed functions of time: any moment, any order, exact integrals
    truths.py        what kind of workload it is, and whether it truly works
    workloads.py     the kinds: how each works, what it does to a GPU, what memory it holds
    applications.py  what a person deployed; its pods, which come and go
    seats.py         an application's place on a GPU, and what it does there at a moment
    devices.py       a GPU and its seats; energy, power, heat
    tenancies.py     who holds what at a moment, and what that truly came to over a time
    readings.py      a device at a moment as signals, just those its model would report
    assembly.py      plans become devices
    nodes.py         `SimulatedNode`: the whole as a `Snapshot`
    loads.py         a load that a person starts, to see it in the numbers
    layouts.py       kinds of nodes, each with a sharing mode
    fleets.py        `default_node` and `fleet`

Nothing here steps through time or keeps state: everything is a function of the seed and the moment. Nothing
reads a clock, a file or a socket; only `core` is imported.
"""
