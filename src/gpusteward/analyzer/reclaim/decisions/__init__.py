"""Which idle workloads are due: their facts, the guards, the decision on each. Reads the cluster, changes nothing.

candidates.py   idle workloads and pools of a result, with the facts of their verdict (pure)
assessment.py   candidates -> all that the guards ask
sightings.py    what this process saw in earlier cycles
past_actions.py what the journal says about a workload, and which warnings count
inspection.py   its objects, and what would change on them
pressure.py     pending pods, and what idle workloads could give them (pure)
facts.py        all that the guards ask about a workload (types)
guards.py       every question about a workload (pure)
decide.py       what the answers come to (pure)
"""
