"""Giving idle GPUs back: policies, their replay over recorded idle spells, lending, and actions that can be undone.

    reclaimer.py   the stage of a cycle, and what API and CLI call
    policies/      what may be done to which workload
    decisions/     which idle workloads are due, and why others are not
    execution/     warnings, and one action on one object
    kinds/         what suspending means for each kind of object
    replay/        what a policy would have done in the past

This package is the only one that writes to the cluster. Modules that decide (`policies/effective.py`, `plan.py`,
`changes.py`, `lending.py`, `replay/`, and `guards.py`, `decide.py` of `decisions/`) are pure: values
in, values out, the time is an argument.
"""
