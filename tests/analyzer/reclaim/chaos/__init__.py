"""Reclaim under faults, on a real control plane, with simulated usage whose truth is known.

    fleet.py             workloads of all kinds, their objects, when each of them really works
    informers.py         every version of every object, as the API server tells it
    controllers.py       what the controllers of custom resources do, as far as reclaim sees it
    analyzer_process.py  the process under test: the real reclaimer, client, ledger and journal; it is killed at will
    faults.py            which faults a cycle meets, by a seed
    chaos.py             the run: cycles, faults, users, and what is counted
    invariants.py        what must hold, checked while it runs and at the end

`bench/chaos.py` runs it at full size.
"""
