"""Usage without an engine: exporters are scraped here, and the window is kept in memory.

    settings.py    what can be chosen: `scrape.*`
    addresses.py   `node-7`, `node-7:9400`, `https://node-7/metrics` -> where to knock
    targets.py     whom to scrape: a list, a file, or the pods of the cluster
    file_list.py   Prometheus' file_sd, read again when it changes
    pod_list.py    exporters among the pods of the cluster, by label
    fetch.py       the one door to a target: HTTP, bounded in size, time and redirects
    connections.py one connection: a request out, an answer in
    unpack.py      gzip that may not grow beyond a limit
    rounds.py      every target once an interval, a bounded number at a time
    wanted.py      which families are worth reading, from the tables of `read.prometheus`
    lines.py       a page -> values by row; a malformed line costs only itself
    labels.py      what is between the braces
    series.py      what one series is about: whose, of which device, said by whom
    rolls.py       the series of one target in arrays
    rings.py       the last values of one target, in arrays of fixed size
    records.py     one target: its series, their rings, its faults
    store.py       all targets together, within limits
    increases.py   how much a counter grew
    answers.py     the questions of `read.prometheus.plan`, answered from the store
    charts.py      the course of one allocation
    running.py     what pods run, from pages read for that
    reports.py     the state of every target in plain data
    source.py      `ScrapeSource`: the whole as a `UsageTable`

Only `fetch.py` and its connections speak to targets. Rows, measures and doubts are made by the same code as those of an
engine, so that both sources give the same table for the same samples.
"""
