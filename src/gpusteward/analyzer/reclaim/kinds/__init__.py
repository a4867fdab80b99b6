"""The kinds of objects that reclaim can change, one module each (siblings that differ by a name share one).

    objects.py    an object of Kubernetes as it was read; JSON pointers
    kind.py       what a kind consists of: the fields that suspend it, when it is refused, how it tells that it stopped
    registry.py   the table of kinds, the objects to act on for a workload, and the rights that this takes

Everything here is pure: objects in, fields or reasons out. `cluster.py` reads and writes.
"""
