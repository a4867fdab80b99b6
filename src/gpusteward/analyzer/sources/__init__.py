"""The usage of every allocation, read from an engine or scraped from exporters.

    usage_source.py   `UsageSource`: the interface of both sources
    pod_processes.py  processes of pods, as reported by gpusteward's agents
    gpu_readings.py   the GPUs of one node, as its exporters report them now
    site_findings.py  what a source says about the whole site
    offered_gpus.py   whether any node offers GPUs, from the Kubernetes API
    usage/            shared by both sources: query results -> usage table
    engine/           access to Prometheus-compatible engines
    promql/           the source that reads from an engine
    scrape/           the source that scrapes exporters and keeps the window in memory
    owners/           root owners of pods, from the Kubernetes API
    http_settings.py  credentials and TLS settings of both sources
    memory_limits.py  the shares of `memory.budget_bytes` that responses, rows, pages and series may take

Reads only, and judges nothing. What could not be read is unknown with a reason, never 0.
"""
