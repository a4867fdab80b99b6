"""Usage from an engine by PromQL. To follow one sample from the engine to the usage table, read in this order:

    source.py            `PrometheusSource`: one read of everything in one engine
    discovery.py         what the site has, found before the first read and again every few cycles
    scheme_reader.py     reads one metric scheme: plan, run, build its partial table
    query_plan.py        the queries of a cycle
    query_runner.py      runs them and collects the results
    unlisted_holders.py  holders that another series names than the presence series
    (engine.client, engine.decode, engine.label_text_index: request -> rows and values)
    (usage.query_results, usage.partial_tables, usage.presence, usage.measures: rows and values -> usage table)

Details of the above: expressions.py (PromQL texts), scheme_detection.py (metric names and labels), scrape_intervals.py,
recording_rules.py, sample_lag.py (late samples). Several engines as one: several_engines.py. An engine whose
address is found by the labels of its Service: found_engine.py. Why there is no GPU: absent_gpus.py. What is wrong with
the whole site: site_checks.py, shared_uuids.py. Outside the cycle: on_demand_queries.py (charts and processes).
"""
