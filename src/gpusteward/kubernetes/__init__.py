"""Kubernetes API client of agent and analyzer.

api.py     JSON objects, lists and watches; error texts that name the missing permission. Nothing in it can write
owners.py  the owners of a pod: followed to the root, or derived from the pod alone (pure)
writes.py  patches, creations and evictions; only `analyzer.reclaim` may import it
"""
