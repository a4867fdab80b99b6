"""Root owners of pods, read from the Kubernetes API.

    settings.py         `kubernetes.*`
    cluster_owners.py   adds the root owner to every allocation of a usage table; caches and budgets
    cluster_names.py    which names of clusters in the series are those of the API server's cluster
    pods_by_name.py     pods whose metrics do not name their uid: the uid, and whether it is the same pod
    owner_resolver.py   follows the owner references of one pod or workload

Reads only. An owner that cannot be read never stops a cycle.
"""
