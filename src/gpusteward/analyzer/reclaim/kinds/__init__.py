"""How objects are suspended, kind by kind. The kinds themselves are the rows of `core/kinds.py`.

    objects.py          an object of Kubernetes as it was read; JSON pointers
    refusals.py         why a single object must not be touched: one predicate for each reason that is not in its row
    targets.py          the objects to act on for a workload: its root, running Jobs, Workloads of Kueue, ScaledObjects
    resource_claims.py  the devices that a pod holds through dynamic resource allocation
    rights.py           the rights that this takes

Everything here is pure: objects in, fields or reasons out. `cluster.py` reads and writes.
"""
