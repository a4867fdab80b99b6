"""The whole product on one machine.

    park.py        simulated nodes that can be scraped: pages made by the agent's own dialects, served over HTTP
    past.py        three weeks of them in the ledger, as if they had been watched
    configs.py     the settings both commands start the analyzer with
    demo.py        `gpusteward demo`: the park, its past, and the analyzer on it
    up.py          `gpusteward up`: an agent on the GPUs of this machine, and the analyzer on it
    children.py    a program of ours as a child that never outlives us

It stands above agent and analyzer, which meet nowhere else but here and in `core`.
"""
