"""The agent of a GPU node: reads NVML, cgroups, the kubelet and pods into one snapshot and serves it at /metrics.

    app.py               creates and starts all components
    collection.py        runs one collection cycle per interval
    collector_runner.py  times each collector and contains its failures
    node_source.py       reads the node, or a simulated one, into a Snapshot
    nvml/                NVML: devices, MIG, signals, processes, GPM, XID events
    dcgm/                optional: profiling signals from a DCGM hostengine
    processes.py         pid -> process name, pod uid, container id
    kubernetes/          the kubelet's list of devices, pods of this node from the API server
    shares/              device claims and annotations -> allocations with share and limits
    attribution.py       process -> container; without Kubernetes: process -> holder of the GPU
    holders.py           what processes prove about holders: pod uids, GPUs of init containers
    host_use.py          CPU, disk and network of the pods that hold GPUs
    hpc_jobs.py          jobs of a workload manager per GPU
    usage_counters.py    busy seconds, video engines and energy, accumulated from snapshot to snapshot
    field_list.py        the list of DCGM fields to export, from a CSV file or a ConfigMap
    dialects/            snapshot -> metric families, one module per naming scheme
    metrics_page.py      the rendered /metrics page and its age
    endpoints.py         content of /metrics, /healthz, /readyz and /snapshot
    http/                HTTP server, TLS, basic authentication
    settings/            flags and environment variables

The agent never imports the analyzer or its dependencies, to keep its memory use low.
"""
