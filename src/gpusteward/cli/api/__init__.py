"""Access to the HTTP APIs of a running analyzer or agent.

    client.py      HTTP client, and the errors it reports
    pagination.py  lists of the analyzer, page by page
    workloads.py   workload names as people type them -> the workload
    snapshots.py   an agent's /snapshot as rows

No printing here, and no import of the programs that serve these APIs.
"""
