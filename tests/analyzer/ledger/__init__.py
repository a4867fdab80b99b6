"""Tests of the ledger package; `cycles.py` makes results to record, `dumps/` holds older schemas."""
