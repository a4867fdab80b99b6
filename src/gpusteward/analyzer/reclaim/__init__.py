"""Giving idle GPUs back: policies, their replay over recorded idle spells, lending, and actions that can be undone.

    plan.py          decisions: what reclaim would do now; what clients can do with it (types)
    reclaimer.py     the stage of a cycle, and what API and CLI call
    build.py         creates it; components.py: what it uses
    open_actions.py  what earlier cycles left open
    policies/        what may be done to which workload
    decisions/       which idle workloads are due, and why others are not
    execution/       one action on one object: its change, its steps, its journal; warnings before it
    kinds/           what suspending means for each kind of object
    cluster.py       reads and writes objects of Kubernetes; listed_pods.py: what it keeps of a listed pod
    permission.py    whether this analyzer may act: the mode, the Lease, the panic switch, the policy file
    replay/          what a policy would have done in the past
    lending.py       which idle GPUs can be lent for how long

The journey of an idle workload has six nouns: `ReclaimWorkload` (its verdict, its pods and its owner as read now),
`Policy` (what applies to it, with the origin of every field), `Decision` (what should happen, and the answer of every
guard), `Plan` (all decisions of a cycle), `Change` (the patch, its undo, the check that it holds), `Action` (a change
that was begun, with its steps in the journal).

This package is the only one that writes to the cluster, and `cluster.py` its only module that does. Modules that decide
(`policies/`, `plan.py`, `lending.py`, `replay/`, and `guards.py`, `decide.py` of `decisions/`) are pure: values in,
values out, the time is an argument.
"""
