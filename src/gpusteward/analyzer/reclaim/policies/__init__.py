"""Policies: when idle GPUs are given back, and how. They come from the operator's file, annotations and defaults.

policy.py   the policy of one workload, and what its owners say by annotations
pool_rule.py  how many replicas of a pool stay (pure)
file.py     the policy file, field by field; errors with their line
example.py  a policy file to begin with
resolve.py  file, annotations and defaults -> the policy of one workload (pure); the file while the program runs
"""
