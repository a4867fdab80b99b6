"""`gpusteward top`: the terminal UI.

    app.py              the Textual application: keys, views, refresh
    table.py            the table of a view
    bars.py             the lines above and below the table, and the keys
    detail.py           the screen of an opened workload
    dialogs.py          help, choice of a workload, prompt for searches and commands
    loader.py           requests in threads, so that the UI never waits
    views.py            columns and sort orders of the three views
    cells.py            cells of the views
    charts.py           time series as a line of block characters
    source_protocol.py  what the UI requests from a source, and the results
    cluster_source.py   source: an analyzer
    node_source.py      source: the agent of one machine, with the history since the UI was started
    node_rows.py        rows of a node from its snapshot

Only app, table, bars, detail, dialogs and loader import Textual or rich.
"""
