"""Allocations: which container holds which GPU, with share and limits. Pure except for the ratio file.

resolver.py     claims, pods and GPUs -> allocations; device ids of device plugins -> GPU or MIG instance, and replica
annotations.py  annotations of HAMi, Volcano, KAI and run:ai
ratio_file.py   k8s-vgpu-monitor's gpu_allocation.txt
"""
