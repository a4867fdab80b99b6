"""What a policy would have done in the past, from the idle spells of the ledger.

replay.py     releases, regrets and savings of a policy, compared with others
intervals.py  when all GPUs of a workload, or of a pod, were idle, and the chances that would have been told then
pools.py      pools of interchangeable replicas
"""
