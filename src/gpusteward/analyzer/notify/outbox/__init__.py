"""The outbox: what is to be sent is first stored in the ledger, then sent by other threads.

The idea: a cycle decides what is sent to whom (`notices/planner.py`, `control_webhook.py`, warnings of reclaim) and
writes it to the table `outbox`, all events of the cycle in one transaction. From then on it does not matter how slow,
broken or restarted a receiver is: threads of their own send each row until the receiver has it or it is too old.

Invariants:

- At least once: a row stays pending until the outcome of its call is stored. A call that the end of the process has
  interrupted is repeated after the restart, with the same idempotency key.
- In order per stream: only the first pending row of a stream is sent. An address of a channel has one stream for what
  has happened, and one for each kind of notice that may wait or be withdrawn, so that nothing waits behind these; the
  control webhook has one per workload.
- Once per key: the same event a second time changes nothing. A cycle that is notified again sends nothing twice.
- States are never sent late. A notice that something has happened is an event: it is delivered, however late. A control
  call and a notice that says how things are (idle, warning, outage) are states: each cycle replaces those that wait, or
  reviews them: it gives them their present text and withdraws what is not true any more. After a start and after a
  failed cycle nobody knows which workloads are still idle: no control call, no notice about idle workloads and no
  warning is sent until the next successful cycle has said so.
- No address is stored: a row names a target (`control`, `channel/ops/0`), and the settings in effect have the address.
- Bounded: per kind in the table, in number and age; in memory while the database is unavailable.

Without it, a cycle would wait for the slowest receiver; a restart of Slack or of the analyzer would lose warnings, and
reclaim acts only after a warning was delivered; a webhook that was down for an hour would get an hour of outdated calls
and take GPUs that are in use again; and a token of a chat bot would stand in the database.

records.py     the rows that are written to the outbox and read from it; numbers for the metrics page
rows.py        the database rows: what is read and written within one transaction
store.py       the outbox itself: limits, states that replace each other, behaviour without a database
dispatcher.py  threads that send pending rows
retry.py       backoff of a delivery, circuit breaker of a host
"""
