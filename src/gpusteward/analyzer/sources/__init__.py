"""The usage of every allocation, read from an engine or scraped from exporters.

    usage_source.py   `UsageSource`: the interface of both sources
    usage/            shared by both sources: query results -> usage table
    engine/           access to Prometheus-compatible engines
    promql/           the source that reads from an engine
    scrape/           the source that scrapes exporters and keeps the window in memory
    owners/           root owners of pods, from the Kubernetes API
    live_readings.py  processes of pods and the state of GPUs, as exporters report them now
    offered_gpus.py   whether any node offers GPUs, from the Kubernetes API
    http_settings.py  credentials and TLS settings of both sources
    memory_limits.py  what responses, rows, pages and series may take of `memory.budget_bytes`

Reads only, and judges nothing. What could not be read is unknown with a reason, never 0.
"""
