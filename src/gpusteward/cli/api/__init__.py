"""Access to the HTTP APIs of a running analyzer or agent.

    client.py          HTTP client, and the errors it reports
    pagination.py      lists of the analyzer, page by page
    workloads.py       workload names as people type them -> the workload; whether a namespace is known
    workload_facts.py  idle costs of the last seven days, and what reclaim would do, by workload
    processes.py       GPUs and processes of a machine (an agent's /snapshot), or of a node through the analyzer

No printing here, and no import of the programs that serve these APIs.
"""
