"""Data model and arithmetic: GPUs, processes, containers, allocations, snapshots, usages, verdicts, metric tables.

Pure: nothing here reads a clock, a file or a socket, and only the standard library is imported.
"""
