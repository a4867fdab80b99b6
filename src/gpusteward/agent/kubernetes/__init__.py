"""Kubernetes data of this node.

kubelet.py       pod-resources socket of the kubelet: which container was assigned which device
grpc_client.py   unary gRPC calls on a socket
podresources.py  messages of the pod-resources API and their decoder (pure)
claims.py        the kubelet's response -> claims (pure)
claim_cache.py   the last known claims, and how long they are valid
pod_watch.py     the pods of this node, kept up to date by a watch on the API server
pod_records.py   JSON of a pod -> the fields the agent needs (pure)
init_devices.py  devices that init containers take and the kubelet does not list (pure)
"""
