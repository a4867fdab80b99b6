"""The API server, as agent and analyzer both see it. Reads and watches only: nothing here can write.

api.py           the door: one JSON answer, or a watch
line_streams.py  a watch as lines that can be interrupted
owners.py        a pod -> the workload a person deployed, from the pod alone (pure)
"""
