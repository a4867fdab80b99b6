"""Policies: when idle GPUs are given back, and how. They come from the operator's file, annotations and defaults.

policy.py       the policy file, field by field
file.py         reads it: errors with their line, reload
example.py      a policy file to begin with
annotations.py  what owners say about their workloads
classes.py      interactive, batch or serving, by the kind of the owner
resolve.py      file, annotations and defaults -> the policy of one workload (pure)
effective.py    the policy of one workload, with the origin of every field
"""
