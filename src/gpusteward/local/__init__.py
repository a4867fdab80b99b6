"""Agent and analyzer together on one machine.

    up.py               `gpusteward up`: an agent on the GPUs of this machine, and an analyzer that scrapes it
    child_process.py    a child process that does not outlive this one
    demo_settings.py    settings and socket of `gpusteward demo`, checked first
    demo.py             `gpusteward demo`: an analyzer on simulated nodes with a history
    demo_control.py     how `gpusteward demo load` finds a running demo
    demo_servers.py     HTTP for the two below, and the channel of the demo's notices
    simulated_fleet.py  metrics and snapshots of simulated nodes, and loads on them
    simulated_cluster.py  API server over the simulated nodes; cluster_objects.py: its objects; api_requests.py: what a
                        request names, and its checks
    history_seed.py     simulated history in the ledger

The only package that imports both programs.
"""
