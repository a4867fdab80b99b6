"""Delivery: events are stored in the ledger's table `outbox` and sent by other threads, in order and at least once.

`notices/planner.py` and `control_webhook.py` decide what is sent to whom.

records.py            the rows that are written to the outbox and read from it
rows.py               the database rows: what is read and written within one transaction
store.py              the outbox itself: limits, control calls that replace each other, behaviour without a database
dispatcher.py         threads that send pending rows
retry.py              backoff of a delivery, circuit breaker of a host
delivery_counters.py  numbers for the metrics page
"""
