"""Delivery: events are stored in the ledger's table `outbox` and sent by other threads, in order and at least once.

What an event says and who receives it is decided elsewhere.

records.py            the records that go into and come out of the outbox
store.py              the outbox itself: database rows, limits, behaviour without a database
dispatcher.py         threads that send pending rows
retry.py              backoff of a delivery, circuit breaker of a host
delivery_counters.py  numbers for the metrics page
"""
