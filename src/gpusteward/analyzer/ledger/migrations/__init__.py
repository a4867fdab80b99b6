"""How older books become those of today: one file a step in `versions/`, never changed once released.

A new step: write `versions/vNNNN_what.py`, set `HEAD`, change `schema.py`, and keep a dump of the schema before it with
the tests. A test compares the tables that the steps make with `schema.py`.
"""

HEAD = "0002"
"""The version this program writes. Known without alembic, which is only loaded when there is a step to take."""
