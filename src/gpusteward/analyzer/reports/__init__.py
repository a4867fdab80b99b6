"""Reports and right-sizing. Reads the ledger, never writes to it.

    report_query.py     what a report is about; standard library only
    report.py           the contents of a report, and of the row of a FOCUS export; standard library only
    make_report.py      `make_report(engine, query)`: one transaction, one state of the ledger
    groups.py           the rows of a report, which add up to its total; of a report by day, one per day
    chart_series.py     the bars of the chart
    previous_period.py  comparison with the period before
    group_details.py    the groups of a report over time
    ended_workloads.py  what the ledger has of a workload that no longer holds a GPU
    workload_history.py verdicts, idle spells, notices and snoozes of one workload
    focus.py            the rows of a FOCUS export
    render/             CSV, JSON, HTML, FOCUS
    right_sizing.py     workloads that would fit into a part of a GPU
    ledger_sums/        which rows of the ledger cover a period, and what they add up to

Money and time are integers, so that sums are exact. Unknown is None, never 0.
"""
