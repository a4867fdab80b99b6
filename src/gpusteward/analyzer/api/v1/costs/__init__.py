"""What idle GPUs cost in a period: the overview, and reports from the ledger."""
