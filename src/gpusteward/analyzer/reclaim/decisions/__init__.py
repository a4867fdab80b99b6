"""Which idle workloads are due: their facts, the guards, the decision on each. Reads the cluster, changes nothing."""
