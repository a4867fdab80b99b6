"""A node at one moment.

gpus.py         GPUs, their processes, and what containers hold of them
containers.py   which container a process belongs to
signals.py      what can be read from a GPU
snapshots.py    all of it, with what failed
usage_split.py  the usage of a GPU, split among its containers
"""
