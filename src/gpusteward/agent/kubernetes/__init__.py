"""What Kubernetes knows of this node.

kubelet.py      the pod-resources socket: which container was given which device
claims.py       the kubelet's answer -> claims (pure)
pods.py         the pods of this node, kept up to date by a watch on the API server
pod_records.py  a pod as JSON -> what is needed of it (pure)
"""
