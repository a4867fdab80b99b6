"""The ledger: what every allocation held, used and wasted, in a SQLite file or in PostgreSQL.

From a verdict to its rows, in reading order:

    ledger.py           `Ledger.record(result)`: buffers cycles while the database is unavailable
    cycle_record.py     a result in compact columns (`CycleRecord`)
    ended_record.py     the part of it about holders that ended before the cycle
    identities.py       ids and texts of allocations
    verdict_changes.py  which verdicts differ from the last recorded ones
    ledger_writer.py    writes a cycle record in one transaction
    idle_correction.py  time recorded as active that turns out to be idle
    ineffective_time.py time recorded as active that turns out to be ineffective, and its spells
    accrual.py          the rows of `usage_hourly` and `fleet_hourly` (pure)
    spells/             idle spells: from cycle to cycle, read, kept in memory, written for the past
    database/           the tables, opening them, writing rows, retention, clock, which of several analyzers writes

Beside that path: last_gpus.py (when there were GPUs last), pool_hours.py (what replicas of pools did in each minute),
snoozes.py (workloads about which nobody wants to hear).

Rules of the contents, for readers of the tables:

- `progress`: "booked" is the end of the last recorded cycle, "rolled" the end of the last hour that is part of
  `usage_daily`, "pruned" the first day whose hourly rows are kept.
- An hour is added to its day once it is over: `usage_daily` always holds exactly the hours that ended at or before
  "rolled", including those of the current day. Hourly rows are kept for `ledger.hourly_days`. Whole days are read from
  `usage_daily`, the edges of a period and the hours after "rolled" from `usage_hourly`, never both for one hour
  (`database.periods.divide_period`).
- Rows older than "booked" change in two cases: time that was recorded as active before a verdict said since when the
  allocation is idle (`idle_correction.py`), or since when its work is ineffective (`ineffective_time.py`): active time
  stays active, and a part of it is ineffective. Allocated time never changes. Rows are deleted by retention, and by a
  person who runs `gpusteward ledger delete-after` (`database/clock.py`).
- `currencies` holds the currency of all amounts of money; amounts in different currencies must not be added.
- The time since the last recorded cycle gets the activity of the current one, up to three intervals. Time before that
  is unknown for allocations that were held before and still are. A new allocation is recorded from the start of its
  pod, at most three intervals back; where the start is unknown, for as long as its samples in the window cover, and
  without samples from its first observation. An allocation that ended is recorded until half a scrape interval after
  its last sample, also if it began and ended between two cycles; one that disappeared together with the samples of its
  device ended when it was last observed.
- The time of a shared GPU is divided among its allocations; energy is what each of them used.
- Readers use `Ledger.engine`; writers use `database.db_engine.with_write_lock(engine)`.

This package computes no verdicts, knows no HTTP and never raises database errors into a cycle.
"""
