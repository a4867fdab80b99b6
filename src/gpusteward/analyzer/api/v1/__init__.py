"""The HTTP API under `/api/v1/`: one module per resource, in packages by subject.

access/      session, me
costs/       overview, reports
reclaim/     plan, actions, policies, replay, lendable GPUs, savings
health/      health and probes of the analyzer, its source, settings, events and deliveries
gpus/        GPUs, the map of all GPUs, nodes, processes
workloads/   workloads, their allocations, series, history and snoozes; namespaces
compact.py, pagination.py, listing.py   what responses and lists of all resources share
"""
