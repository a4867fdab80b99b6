"""Reports and right-sizing. Reads the ledger, never writes to it.

    report.py           the query and the contents of a report; standard library only
    make_report.py      `make_report(engine, query)`: one transaction, one state of the ledger
    ended_workloads.py  what the ledger has of a workload that no longer holds a GPU
    ledger_connection.py  read access to the ledger
    ledger_extent.py    how far the ledger reaches, and which time a report covers
    period_totals.py    sums over a period per allocation, computed by the database
    amounts.py          sums -> amounts, and their currency
    grouping.py         what rows are grouped by
    groups.py           the rows of a report, which add up to its total
    days.py             the rows of a report by day
    unallocated.py      GPUs that were not allocated
    chart_series.py     the bars of the chart
    previous_period.py  comparison with the period before
    right_sizing.py     workloads that would fit into a part of a GPU (pure)
    flagged_workloads.py those of them that are idle, keep-alive or only health-checked, and left out
    mig_profiles.py     MIG profiles by board
    charges.py, focus.py  the rows of a FOCUS export
    render/             CSV, JSON, HTML, FOCUS

Money and time are integers, so that sums are exact. Unknown is None, never 0.
"""
