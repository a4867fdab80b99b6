"""The checks of `gpusteward doctor`. Each returns check results, changes nothing and is limited in time.

check_results.py   `CheckResult`: status, text, and how to fix it
driver.py          NVML and /dev/nvidia*
hostengine.py      the DCGM hostengine: whether it responds, and which fields it gives
node.py            /proc, cgroups, and the kubelet's pod-resources socket
permissions.py     permissions of this pod at the API server
engine_address.py  address of Prometheus: flag, environment, or settings of the analyzer
engine.py          Prometheus: whether it responds, has GPU metrics, and how often they are scraped
servers.py         the analyzer and the agent, and the clocks of all servers
samples.py         sample coverage of the analyzer
installation.py    an installation in a cluster: agents, targets, first verdicts (`helm test`)
"""
