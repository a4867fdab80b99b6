"""What a policy would have done in the past, from the idle spells of the ledger.

replay.py          releases, regrets and savings of a policy, compared with others
idle_intervals.py  when all GPUs of a workload, or of a pod, were idle
past_chances.py    chances of resumption as they would have been told
pools.py           pools of interchangeable replicas
"""
