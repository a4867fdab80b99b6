"""The database of the ledger: its tables, and what keeps them right.

    schema.py         the tables; schema_version.py creates them and refuses those of another version
    db_engine.py      opens SQLite or PostgreSQL; the lock of writers
    upsert.py         column dictionaries -> INSERT ... ON CONFLICT
    periods.py        hours, days and the progress of what is recorded
    retention.py      adds hours to days, and deletes old rows
    clock.py          a clock that is wrong: what is not recorded, and what a person deletes
    leadership.py     which of several analyzers writes
    copy.py           SQLite to PostgreSQL

Knows rows and times, and nothing of results or verdicts.
"""
