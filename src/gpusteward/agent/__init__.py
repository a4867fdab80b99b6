"""The agent of a GPU node: reads NVML, cgroups, the kubelet and pods into one snapshot and serves it at /metrics.

    app.py               creates and starts all components
    collection.py        runs one collection cycle per interval
    collector_runner.py  times each collector and contains its failures
    node_source.py       reads a real node into a Snapshot
    simulated_source.py  reads a simulated node into a Snapshot
    nvml/                NVML: devices, MIG, signals, processes, GPM, XID events
    dcgm/                optional: profiling signals from a DCGM hostengine
    proc/                pid -> process name, pod uid, container id
    kubernetes/          pod-resources socket of the kubelet, pods of this node from the API server
    shares/              device claims and annotations -> allocations with share and limits
    attribution.py       process -> container; without Kubernetes: process -> holder of the GPU
    holder_uids.py       pod uids of holders while the API server is not available
    init_containers.py   GPUs that init containers took
    hpc_jobs.py          jobs of a workload manager per GPU
    usage_counters.py    busy seconds, video engines and energy, accumulated from snapshot to snapshot
    fields/              the list of DCGM fields to export, from a CSV file or a ConfigMap
    dialects/            snapshot -> metric families, one module per naming scheme
    lost_gpus.py         identifies GPUs that were lost before the start
    unavailable_families.py  families that a GPU model does not provide
    metrics_page.py      the rendered /metrics page and its age
    endpoints.py         content of /metrics, /healthz, /readyz and /snapshot
    http/                HTTP server, TLS, basic authentication
    settings/            flags and environment variables

The agent never imports the analyzer or its dependencies, to keep its memory use low.
"""
