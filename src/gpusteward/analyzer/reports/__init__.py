"""What the books come to: reports and right-sizing. Reads the ledger, never writes to it.

    reports.py         a report as plain values: what is asked for, what comes out; standard library only
    moments.py         `7d`, `2026-11-01` -> a moment
    make.py            the door: `make_report(engine, query)`; one transaction, one state of the books
    ranges.py          which whole hours and days answer a question
    sums.py            the sheet: a period added up per allocation, by the database
    amounts.py         sums -> amounts (pure)
    groups.py          the rows of a report, which add up to its total
    fleets.py          GPUs that nobody held
    points.py          the bars of the chart
    trends.py          the period before
    right_sizing.py    who would fit into a part of a GPU (pure)
    mig.py             which parts a board has
    render/            CSV, JSON, HTML

Money and time are integers: nothing is ever lost by adding up. What is unknown is None, never 0.
"""
