"""What Kubernetes knows of this node, by the two doors an agent has.

kubelet.py       the pod-resources socket: which container was given which device
claims.py        the kubelet's answer -> claims (pure)
api.py           the API server: read, watch; nothing here ever writes
line_streams.py  a watch as lines that can be interrupted
pods.py          the pods of this node, kept up to date by a watch
pod_records.py   a pod as JSON -> what is needed of it (pure)
owners.py        a pod -> the workload a person deployed (pure)
"""
