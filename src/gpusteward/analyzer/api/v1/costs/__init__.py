"""What idle GPUs cost in a period: the overview, and reports from the ledger.

Resources: overview.py, reports.py. Parts of the overview: waste.py.
"""
