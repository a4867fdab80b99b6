"""The HTTP API under `/api/v1/`: one module per resource, in packages by subject.

session.py   who the client is, and sign-in of browsers
costs/       overview, reports
reclaim/     plan, actions with what they saved, mode and switch with the policies, replay, lendable GPUs
health/      health and probes of the analyzer, its source and settings, events and deliveries
gpus/        GPUs, as a list and as a map; nodes, processes
workloads/   workloads, their allocations, series, history and snoozes; namespaces
compact.py, pagination.py   what responses and lists of all resources share
"""
