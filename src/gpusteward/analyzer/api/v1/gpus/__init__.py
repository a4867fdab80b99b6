"""GPUs and nodes with their holders, and the processes on GPUs.

Resources: gpus.py, gpu_map.py, nodes.py, processes.py. Parts of the nodes: node_rows.py, node_gpus.py, gpu_errors.py.
"""
