"""Workloads: verdicts, allocations, series, history, snoozes; and their sums by namespace.

Resources: workloads.py (all of them), workload_detail.py (one), workload_history.py, snoozes.py, allocations.py,
namespaces.py. Shared by them: workload_columns.py (what is read of each workload), workload_paths.py, period_costs.py.
"""
