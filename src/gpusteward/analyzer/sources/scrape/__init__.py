"""Usage without an engine: exporters are scraped here, and their samples are kept in memory.

    settings.py        `scrape.*`, and how a target is written
    targets.py         which targets to scrape: a list, a file, or the pods of the cluster
    reported_node.py   the one node that a target may report
    fetch.py           one page of one target over HTTP
    scrape_loop.py     every target once per interval, a limited number at a time
    metric_filter.py   the metric families that are read, from the tables of `sources.usage`
    page_parser.py     a page -> values by series; a malformed line affects no other
    series.py          what the labels of a series contain; the series of one target in arrays
    ring_buffers.py    the last values of one target in arrays of fixed size; window aggregation
    target_samples.py  one target: its series, their values, its parse errors
    sample_store.py    all targets together, within limits
    store_queries.py   the query plan of `sources.promql`, computed from the store; charts
    status_report.py   the state of every target as plain data
    source.py          `ScrapeSource`: a `UsageTable` from all of it

Rows, measures and coverage are computed by the same code as those of an engine, so that both sources give the same
table for the same samples.
"""
