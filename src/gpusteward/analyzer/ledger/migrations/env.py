"""Run by alembic: applies migrations on the connection and in the transaction of `upgrade.py`."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
