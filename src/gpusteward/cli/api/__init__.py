"""Access to the HTTP APIs of a running analyzer or agent.

    client.py          HTTP client; errors.py: the errors it reports
    pagination.py      lists of the analyzer, page by page
    workloads.py       workload names as people type them -> the workload
    namespaces.py      whether a namespace is known
    idle_costs.py      idle costs of the last seven days by workload
    plans.py           what reclaim would do with each workload
    snapshots.py       an agent's /snapshot as rows
    node_processes.py  the processes on the GPUs of one node, through the analyzer

No printing here, and no import of the programs that serve these APIs.
"""
