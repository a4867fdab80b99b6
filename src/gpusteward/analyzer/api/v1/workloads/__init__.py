"""Workloads: verdicts, allocations, series, history, snoozes; and their sums by namespace."""
