"""Schema migrations of the ledger: `upgrade.py` applies them, `versions/` has one module per migration;
`env.py` is what Alembic loads.

A released migration never changes. To add one: write `versions/vNNNN_what.py`, set `upgrade.HEAD`, change `schema.py`,
and add a dump of the new version to tests/analyzer/ledger/dumps. A test compares the migrated tables with
`schema.py`.
"""
