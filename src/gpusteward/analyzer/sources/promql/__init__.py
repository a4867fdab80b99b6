"""Usage from an engine by PromQL. To follow one sample from the engine to the usage table, read in this order:

    source.py            `PrometheusSource`: one read of everything in one engine
    scheme_reader.py     reads one metric scheme: plan, run, build its partial table
    query_plan.py        the queries of a cycle
    query_runner.py      runs them: request -> rows and values
    (usage.query_results, usage.partial_tables, usage.presence, usage.measures: rows and values -> usage table)

Details of the above: discovery.py (what the site has, found before the first read and again every few cycles),
expressions.py (PromQL texts), unlisted_holders.py (holders that another series names than the presence series),
sample_timing.py (scrape intervals, late samples), recording_rules.py. Requests of inference servers:
request_queries.py. Several engines as one: several_engines.py. Its
GPUs, and what is wrong with the whole site: fleet.py, site_checks.py. Outside the cycle: on_demand_queries.py, and
host_use.py (CPU, disk and network of pods).
"""
