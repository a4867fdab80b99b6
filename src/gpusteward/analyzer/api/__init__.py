"""HTTP in and out: one file a noun, no thinking. Nothing here waits for the source, but `series.py` and `processes.py`.

    build.py           the application with all its routes
    dependencies.py         what endpoints may look at and ask for
    board.py           the last result, and what is made of it once: bodies, listings; and the page at /metrics
    publishing.py      a finished cycle goes up on the board
    roles.py           bearer token -> role
    access.py          roles as dependencies of routes
    guard.py           around every request: size limits, security headers, the log
    problems.py        the one JSON error shape
    pages.py           cursors, sorting, filters, ETag: how lists are asked for
    listings.py        rows that can be filtered and sorted without being made
    packing.py         large bodies, made once and kept packed
    checksums.py       the CRC-32 of a text out of those of its parts
    sending.py         bodies and values -> responses
    places.py          work that may take long, few at once, beside the event loop
    event_feed.py      who listens to events, and what is told them
    fleets.py          how many GPUs there are, and which nobody holds
    metrics_page.py    /metrics
    metrics_bodies.py  what a result puts on that page
    seed_results.py    /results, /results/low, /results/stats as gpu-oour has them
    seed_config.py     /, /health, /analyze, /config, /config/update as gpu-oour has them
    gpus.py allocations.py workloads.py series.py processes.py    /api/v1/...
    namespaces.py sources.py health.py events.py                  /api/v1/...
    deliveries.py      /api/v1/deliveries: what is on its way, what was given up, and trying that again
    reports.py         /api/v1/reports: what the ledger says, as JSON, CSV or HTML
    docs.py            /docs without a network

Endpoints that make rows are plain functions: FastAPI runs them in threads, the event loop stays free.
"""
