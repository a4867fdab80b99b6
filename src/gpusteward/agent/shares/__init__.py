"""Who holds which GPU, and how much of it. Pure, but for the ratio file.

resolve.py      claims, pods and GPUs -> allocations
device_ids.py   the kubelet's device ids -> a GPU of this node and a slice of it
annotations.py  what HAMi, Volcano, KAI and run:ai write on pods
ratio_file.py   k8s-vgpu-monitor's gpu_allocation.txt
"""
