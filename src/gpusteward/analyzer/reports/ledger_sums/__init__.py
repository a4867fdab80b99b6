"""What the ledger adds up for a report: the basis of its rows, days and charts.

ledger_extent.py    read access to the ledger, how far it reaches, and which time a report covers
grouping.py         what rows are grouped by
period_totals.py    sums over a period per allocation, computed by the database
amounts.py          sums -> amounts, and their currency
unallocated.py      GPUs that were not allocated
"""
