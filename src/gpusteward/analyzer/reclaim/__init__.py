"""Giving idle GPUs back: policies, their replay over recorded idle spells, lending, and actions that can be undone.

    plan.py          decisions: what reclaim would do now (types)
    actions.py       actions: what is planned for, or was done to, one object (types)
    reclaimer.py     the stage of a cycle, and what API and CLI call
    build.py         creates it; components.py: what it uses
    open_actions.py  what earlier cycles left open
    policies/        what may be done to which workload
    decisions/       which idle workloads are due, and why others are not
    execution/       warnings, and one action on one object
    kinds/           what suspending means for each kind of object
    changes.py       what an action writes to an object
    cluster.py       reads and writes objects of Kubernetes; listed_pods.py: what it keeps of a listed pod
    journal.py       the table `actions`; savings.py: the GPU time that they gave back
    lease.py         which analyzer may act; switch.py: whether any may
    replay/          what a policy would have done in the past
    lending.py       which idle GPUs can be lent for how long

This package is the only one that writes to the cluster, and `cluster.py` its only module that does. Modules that decide
(`policies/`, `plan.py`, `changes.py`, `lending.py`, `replay/`, and `guards.py`, `decide.py` of
`decisions/`) are pure: values in, values out, the time is an argument.
"""
