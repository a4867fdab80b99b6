"""Notices to people: which workloads are reported to which channel, when, how often, and in which words.

Nothing here sends anything: the result is an `OutboxBatch`.

planner.py         decides which notices a cycle produces
idle_workloads.py  idle workloads with GPUs, idle time, memory and cost
routing.py         which channels receive notices about a namespace
notice_history.py  which notices were sent when: repeat interval and rate limit
quiet_hours.py     quiet hours and the time of the weekly digest
messages.py        text of a message
digest.py          the weekly digest
reclaim_notices.py warnings and other notices of reclaim, with buttons
formatting.py      names made safe for chat clients; durations, times, amounts
"""
