"""Tests of the reports package; `ledger_rows.py` writes known rows into a ledger."""
