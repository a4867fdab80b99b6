"""Workloads: verdicts, allocations, series, history, snoozes; and their sums by namespace.

Resources: workloads.py (the list), workload_table.py (the same in columns, for the web UI), workload_detail.py,
workload_history.py, workload_notices.py, ended_workloads.py, allocations.py, series.py, snoozes.py, namespaces.py.
Shared by them: workload_rows.py (the JSON of one workload), workload_facts.py, workload_paths.py, period_costs.py,
snooze_state.py.
"""
