"""Kubernetes API client of agent and analyzer. Reads and watches only: nothing here can write.

api.py     JSON objects, lists and watches; error texts that name the missing permission
owners.py  a pod -> its workload, derived from the pod alone (pure)
"""
