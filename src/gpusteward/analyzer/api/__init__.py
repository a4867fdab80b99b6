"""The HTTP API of the analyzer. Endpoints read what other packages computed; they compute no verdicts.

    build.py         the FastAPI application with all routes
    dependencies.py  the components that endpoints may use
    authorization.py access checks of routes: may_read, may_read_all, may_inspect, may_operate, may_administer
    source_reader.py what clients read from the source
    result_store.py  the last published result, and what is derived from it
    publisher.py     the `publish` stage of the pipeline
    event_feed.py    server-sent events
    metrics_page.py  /metrics
    docs.py          /docs
    questions.py     /mcp: questions of assistants
    snooze_page.py   the page behind the links of warnings; give_back_page.py: suspends the workload now, and restores
    ui/              /ui/: the files of the web UI
    v1/              /api/v1/...: one module per resource, in packages
    compat/          gpu-oour's endpoints
    http/            roles, identities, tokens of providers, sessions, static files, middleware, errors, responses,
                     concurrency limits, cached reads; knows no resource

Endpoints that build rows are plain functions: FastAPI runs them in threads, and the event loop stays free. What waits
for the source or the ledger has a limit of its own (`http/concurrency_limits.py`) or is read once for all requests
(`http/cached_reads.py`).
"""
