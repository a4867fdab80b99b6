"""GPUs and nodes with their holders, and the processes on GPUs.

Resources: gpus.py, nodes.py, processes.py. Part of the nodes: node_rows.py.
"""
