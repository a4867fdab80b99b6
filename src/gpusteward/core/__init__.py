"""What things are: GPUs, processes, containers, allocations, snapshots, and the names they are exported under.

Values and arithmetic only. Nothing here reads a clock, a file or a socket, and nothing outside the
standard library is imported.
"""
