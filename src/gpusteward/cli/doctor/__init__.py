"""The checks of `gpusteward doctor`. Each returns check results, changes nothing and is limited in time.

check_results.py  `CheckResult`: status, text, and how to fix it
node.py           the driver, the DCGM hostengine, /proc, cgroups, and the kubelet's pod-resources socket
engine.py         Prometheus: its address, whether it responds, has GPU metrics, and how often they are scraped
servers.py        the analyzer and the agent, sample coverage, and the clocks of all servers
installation.py   permissions at the API server, and an installation in a cluster (`helm test`)
"""
