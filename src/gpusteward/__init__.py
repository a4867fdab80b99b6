"""gpusteward: who holds each GPU, how well it is used, what the waste costs.

The rooms, from the top; imports only point down:

    cli        what people type, one file a command
    agent      what a node sees: NVML, cgroups, the kubelet, pods -> one snapshot -> /metrics
    analyzer   what the cluster means: usage is read, judged, explained and served
    kubernetes the door to the API server, for agent and analyzer
    simulate   GPUs that do not exist: nodes and workloads with a known truth
    core       what things are: pure values and arithmetic, standard library only
    logs       how every room speaks to the log
"""

__version__ = "0.1.0"
