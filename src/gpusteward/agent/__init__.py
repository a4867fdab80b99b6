"""What a node sees: NVML, cgroups, the kubelet and pods become one snapshot; the snapshot becomes /metrics.

    nvml/         the only door to NVML: devices, MIG, signals, processes, GPM, XID events
    proc/         pid -> name, pod uid, container id
    kubernetes/   the kubelet's socket and the API server: device -> pod, the pods of this node, their owners
    shares/       claims and annotations -> allocations with their share and limits
    attribute.py  whose process it is (pure)
    node.py       asks all of them, each guarded, and joins the answers into one Snapshot
    simulated.py  the same for a node that does not exist
    guards.py     times and guards every collector
    meters.py     counters that grow from snapshot to snapshot
    fields/       the choice of DCGM fields: CSV file or ConfigMap, re-read when it changes
    dialects/     Snapshot -> series under four systems' names
    pages.py      the rendered page, its age, and what of it is still true
    collect.py    the worker: one cycle after another
    answers.py    what the web is told: the page, health, readiness
    web/          HTTP, TLS, basic authentication
    settings/     every flag and environment variable
    app.py        builds every part once

Never imports the analyzer or its dependencies: an agent must stay light.
"""
