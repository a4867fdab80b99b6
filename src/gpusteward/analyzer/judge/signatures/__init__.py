"""The signature of each allocation: the kind of use or idleness.

    evidence.py  what the rules may use: usage, capacities, activity, proof, history
    idle.py      rules for allocations without work: starting, hung, empty, asleep, no requests, parked
    active.py    rules for allocations with work: keep-alive, health-check, starved, bursty
    keep_alive.py  artificial load: its settings, and its proof at any level
    stalled.py   busy without doing anything: a frozen server, a frozen gang; loaded_idle.py: the power of a GPU that
                 holds memory and does nothing, learned by model

In `judge.py` the first rule that matches gives the signature; steady and unknown are what remains.

A rule is a settings class with described fields and one pure function. The words of the signatures and the highest
step of each are in `core.verdicts.Signature`, the texts in `messages.verdicts`.
"""
