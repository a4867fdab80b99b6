"""What alembic runs to take steps: on the connection, and in the transaction, that `upgrades.py` gives it."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
