"""gpusteward: who holds each GPU, how well it is used, what the waste costs.

The packages from the top; imports only point down:

    cli         the commands, one module each
    local       `up` and `demo`: agent and analyzer together on one machine
    agent       runs on every GPU node: NVML, cgroups, the kubelet and pods -> one snapshot -> /metrics
    analyzer    runs once per site: reads usage, judges, explains, records, notifies, reclaims and serves it
    kubernetes  client of the API server, for agent and analyzer
    http        HTTP client
    http_server  what the HTTP servers of agent and analyzer share
    watched_file  a text file that is read again when it changes
    yaml_lines  YAML text -> values that know their line
    simulate    simulated nodes and workloads with a known truth
    messages    texts for users in English and Chinese
    core        values and arithmetic; standard library only, no I/O
    logs        structured logging
"""

__version__ = "0.1.0"
