"""Root owners of pods, read from the Kubernetes API.

    settings.py         `kubernetes.*`
    cluster_owners.py   adds the root owner to every allocation of a usage table; caches and budgets
    cluster_names.py    which names of clusters in the series are those of the API server's cluster
    pod_uids.py         uids of pods whose metrics do not name them
    pod_nodes.py        whether such a pod is the pod of this name in the API server, by its node
    owner_resolver.py   follows the owner references of one pod or workload

Reads only. An owner that cannot be read never stops a cycle.
"""
