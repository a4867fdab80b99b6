"""`gpusteward top`: the terminal UI.

    app.py              the Textual application: keys, views, refresh; requests in threads
    widgets.py          the table of a view, the lines above and below it, help, choice of a workload, prompt
    detail.py           the screen of an opened workload, with its charts
    columns.py          columns, cells and sort orders of the three views
    item_source.py      what the UI requests from a source, and the results
    cluster_source.py   source: an analyzer
    agent_source.py     source: the agent of one machine, with the history since the UI was started

Only app, widgets and detail import Textual or rich.
"""
