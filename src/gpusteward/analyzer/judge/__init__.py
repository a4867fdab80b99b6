"""Rules: usage of allocations -> verdicts. Pure functions over columns; a rule is a settings class and a function.

    judge.py               a usage table becomes a verdict table
    rules.py               the settings of all rules
    allocation_columns.py  columns made from the allocations: identity, GPU model, owner kind
    valid_values.py        measured ratios and times of kernels; impossible values are unknown
    gpu_models.py          memory and power limit of each row: metric, GPU model, configured default
    score.py               0 to 100, four weighted parts; and the range that it falls into, corrected by activity
    activity.py            active, idle or unknown, and why unknown
    proof.py               integrated or sampled
    requests.py            what requests of inference servers mean: silence, and what contradicts idleness
    history.py             what is known from earlier cycles
    resumption.py          the chance that work comes back, from idle spells
    gpu_fraction.py        the fraction of a GPU that each allocation holds
    fleet.py               all GPUs, held or not: active, idle, unknown, unallocated
    signatures/            the kind of use or idleness
    workloads.py           verdicts of allocations joined to their root owner
    reasons.py             the reasons of a verdict, with its numbers

No clock, no I/O, no client, no logs. Imports only `core`, `messages`, `analyzer.tables` and `analyzer.setting_values`,
besides numpy and pydantic. NaN is unknown: no rule may turn it into 0.
"""
