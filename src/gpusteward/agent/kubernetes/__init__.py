"""Kubernetes data of this node.

kubelet.py       the kubelet's list of devices -> claims, and how long they are valid
podresources.py  messages of the pod-resources API and their decoder (pure)
grpc_client.py   unary gRPC calls on a socket
pod_watch.py     the pods of this node, kept up to date by a watch on the API server
pods.py          JSON of a pod -> the fields the agent needs (pure)
"""
