"""Which idle workloads are due: their facts, the guards, the decision on each. Reads the cluster, changes nothing.

workloads.py   idle workloads and pools of a result: their verdict, their pods and their owner as read now
past.py        what this process saw in earlier cycles, what the journal says, and which warnings count
host_use.py    what their pods do on their hosts: CPU, disk, network
guards.py      every question about a workload (pure)
decide.py      what the answers come to (pure)
pressure.py    pending pods, and what idle workloads could give them (pure)
assessment.py  all of it, for the workloads of a cycle
"""
