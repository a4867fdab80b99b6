"""The analyzer: reads the usage of every GPU, computes verdicts, records GPU-hours, sends notifications, serves an API.

    app.py               creates and wires all components
    server/              runs them as a program: socket, HTTP server, signals
    pipeline.py          one cycle: read, judge, explain, publish, pools, record, notify, reclaim
    scheduler.py         the thread that runs a cycle every interval
    backfill.py          cycles of the past, for idle spells before the first record
    runtime_settings.py  the settings in effect; changed files and requests
    data_health.py       how old and how complete the last result is
    host_witnesses.py    what pods of workloads that may be stalled do on their hosts, as columns of the usage table
    pool_watch.py        how many replicas of a pool are at work at once, minute by minute
    gpu_presence.py      why there is no GPU at all; nodes and GPUs that are missing among others
    active_source.py     the source that the settings choose
    ledger_access.py     the ledger as pipeline and API use it
    api/                 HTTP endpoints
    metrics/             the /metrics page
    reclaim/             gives idle GPUs back: policies, decisions, actions that can be undone
    notify/              notifications, control webhook, Alertmanager
    reports/             reports from the ledger
    ledger/              database of GPU-hours and verdict changes
    settings/            all sections of the settings, and reading them
    explain/             second opinion of a language model
    judge/               score, activity, proof, signatures, workload verdicts; pure
    sources/             usage from Prometheus-compatible engines or exporters; owners from Kubernetes
    results.py, tables.py, spell_table.py, pool_minutes.py, prices.py, setting_values.py    shared

Never imports the agent: both use `core`. Only `reclaim` writes to the cluster.
"""
