"""Usage of every allocation, from where the samples already lie.

    sources.py    `UsageSource`: what the cycle asks, whoever answers
    processes.py  what pods run, as gpusteward's agents tell it
    owners.py     pod or told workload -> root owner, from the Kubernetes API
    owner_walks.py the walk itself, one question an owner
    current.py    the source of the settings in force
    credentials.py who we are to engines and exporters
    prometheus/   Prometheus, VictoriaMetrics, Thanos, Mimir: windows computed by the engine
    scrape/       no engine: exporters scraped here, windows kept in memory

Reads only. What could not be read is unknown with its reason, never 0; nothing here judges.
"""
