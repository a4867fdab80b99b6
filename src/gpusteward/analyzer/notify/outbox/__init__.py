"""Delivery: events are stored in the ledger's table `outbox` and sent by other threads, in order and at least once.

`notices/planner.py` and `control_webhook.py` decide what is sent to whom.

records.py            the rows that are written to the outbox and read from it
store.py              the outbox itself: database rows, limits, behaviour without a database
dispatcher.py         threads that send pending rows
retry.py              backoff of a delivery, circuit breaker of a host
delivery_counters.py  numbers for the metrics page
"""
