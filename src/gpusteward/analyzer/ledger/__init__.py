"""The ledger: what every allocation held, used and wasted, in a SQLite file or in PostgreSQL.

    schema.py      the tables; who reads or writes them imports them from here
    ledger.py      the door: `Ledger.book(result)`; a lost database stops the books, never the verdicts
    sheets.py      a result in compact columns: what is buffered while the database is away
    clocks.py      brings the books back from a future that a wrong clock has led them into
    periods.py     which rows answer a question about a time: daily ones, and hourly ones at the edges
    recollection.py since when workloads are idle, for the first cycle after a start
    engines.py     the only place that knows how SQLite and PostgreSQL are opened; postgres.py bounds every wait

How the books are kept, for those who read them:

- `progress` "booked" is the end of the last booked cycle, "rolled" the end of the last hour that is in `usage_daily`,
  "pruned" the first day whose hours are kept.
- Hourly rows are added to their day when their hour is over: `usage_daily` always holds exactly the hours that ended at
  or before "rolled", also of the day under way. Hourly rows stay for `ledger.hourly_days`. So whole days are read from
  `usage_daily`, what is left at the edges of a period and the hours after "rolled" from `usage_hourly`; never both for
  one hour. `periods.read_period` answers with these ranges.
- A row once older than "booked" never changes, but for rows of hours that have not come yet (`clocks.py`).
- `currencies` says what money is counted in: whoever adds up money asks it whether that is one and the same.
- The time since the last booked cycle has the activity of this one, up to three intervals; what is before that is
  unknown, for who was held before and is held now. Who is new is booked from the start of its pod, within those three
  intervals, and from its first sighting where the start is unknown. Who is gone ended when it was last seen. What no
  source names in a cycle is not booked.
- The time of a shared device is divided among its holders (`weights.py`); energy is what each one drew.
- Readers use `Ledger.engine` as it is; who writes uses `engines.writing(engine)`: SQLite then locks at once.

This room judges nothing, knows no HTTP and never raises into a cycle.
"""
