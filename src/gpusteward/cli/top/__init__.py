"""`gpusteward top`: the screen.

    views.py      GPUs, workloads, tenants: their columns, sortings and keys
    names.py      names of workloads and holders in few cells
    asking.py     what the screen asks a source, and what it is given
    cluster.py    the source that is an analyzer: pages by cursor, only what is shown
    node.py       the source that is one machine's agent, with the history seen while watching
    node_rows.py  a snapshot as rows
    running.py    the processes of a workload as lines
    sparks.py     a course as a line of blocks; a gap stays a gap
    labels.py     what the lines of a chart are called
    loader.py     questions in threads, so that the screen never waits
    bars.py       the lines above and below the table
    table.py      the table: columns that fit the window, rows that keep their place
    app.py        keys and views
    detail.py     a workload opened
    keys.py       which key does what, for the screen and its help

Only app.py, detail.py, table.py, bars.py and loader.py know Textual; the rest can be tested without a terminal.
"""
