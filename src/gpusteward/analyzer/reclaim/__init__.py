"""Giving idle GPUs back: policies, their replay over recorded idle spells, lending, and actions that can be undone.

This package is the only one that writes to the cluster. Modules that decide (`policies/effective.py`, `pool_rule.py`,
`replay.py`, `lending.py`, `guards.py`, `plan.py`) are pure: values in, values out, the time is an argument.
"""
