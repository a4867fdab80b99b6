"""What usage means: pure functions over columns, one rule a file with its described settings.

    judge.py        the whole story: a usage table becomes a verdict table
    rules.py        gathers the settings of every rule
    keys.py         what holdings say, in columns: who, which model, which kind of owner
    ratios.py       measured shares of time; what no GPU can read counts as unknown
    models.py       typical memory, power limit and idle power of GPU models
    capacities.py   how much memory and power a row could use: metric, model, configured default
    score.py        0 to 100, four weighted parts
    activity.py     active, idle or unknown, and why unknown
    states.py       the score in four words, corrected by activity
    memory.py       what earlier cycles saw: a value that comes in and goes out
    signatures/     what kind of (in)activity it is, one kind a file
    workloads.py    allocations joined to their root owner: `judge_workloads`
    reasons.py      a verdict in plain words, with its numbers: `explain_row`
    texts.py        those words, in English and Chinese

Numbers in, numbers out: no clock, no I/O, no client, no logs. Only core and `analyzer.tables` are imported, and
numpy and pydantic. NaN is unknown: no rule here may turn it into 0.
"""
