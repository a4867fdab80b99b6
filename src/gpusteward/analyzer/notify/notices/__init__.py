"""Notices to people: which workloads are reported to which channel, when, how often, and in which words.

Nothing here sends anything: the result is an `OutboxBatch`.

planner.py         decides which notices a cycle produces
idle_workloads.py  idle workloads with GPUs, idle time, memory and cost; stalled ones
routing.py         to whom, when and how often: channels of a namespace, quiet hours, which notices were sent when
messages.py        text of a message
digest.py          the weekly digest and its time
reclaim_notices.py warnings and other notices of reclaim, with buttons
formatting.py      names made safe for chat clients; durations, times, amounts
"""
