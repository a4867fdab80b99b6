"""Dialects: each module renders the same snapshot under the metric names of one system.

A dialect takes a `SnapshotView` and returns metric families. It does no I/O, reads no clock, and its failure does not
affect other dialects.

    native.py        gpusteward's own names, in base units
    dcgm.py          dcgm-exporter's names; dcgm_rows, dcgm_events, dcgm_options and xid_texts belong to it
    pod_metrics.py   k8s-vgpu-monitor's and nvidia-pid2pod's names
"""
