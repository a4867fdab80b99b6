"""What `gpusteward doctor` looks at: one file a subject, each with `check(...) -> findings`.

    findings.py        a finding: how it stands, and how to mend it
    driver.py          NVML, and the rights on /dev/nvidia*
    processes.py       /proc and cgroups
    kubelet.py         the pod-resources socket
    rights.py          what the API server allows this pod
    engine_address.py  where Prometheus is: a flag, the environment, or the settings of the analyzer
    engine.py          Prometheus: whether it answers, has GPU metrics, and how often they are scraped
    servers.py         the analyzer and the agent
    samples.py         whether the analyzer has enough samples of what can be measured
    clocks.py          the clocks of all servers that answered, against this one

No check changes anything, none needs another to succeed, and each is bounded in time.
"""
