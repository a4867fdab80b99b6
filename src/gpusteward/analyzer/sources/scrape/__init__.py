"""Usage without an engine: exporters are scraped here, and their samples are kept in memory.

    settings.py        `scrape.*`, and how a target is written
    targets.py         which targets to scrape: a list, a file, or the pods of the cluster; which node each may report
    scrape_loop.py     every target once per interval, a limited number at a time
    page_parser.py     a page -> values by series; a malformed line affects no other
    series.py          what the labels of a series contain; the series of one target in arrays
    ring_buffers.py    the last values of one target in arrays of fixed size; window aggregation
    series_values.py   the values of these series, and what is read from them
    sample_store.py    one target: its series and parse errors; all targets together, within limits
    host_counters.py   CPU, disk and network of pods, from the agents
    store_queries.py   the query plan of `sources.promql`, computed from the store; charts
    server_requests.py what inference servers among the targets say of their requests
    source.py          `ScrapeSource`: a `UsageTable` from all of it

Rows, measures and coverage are computed by the same code as those of an engine, so that both sources give the same
table for the same samples.
"""
