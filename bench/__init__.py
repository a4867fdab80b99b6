"""Benchmarks: `make bench` writes bench/results/. One way to measure, one way to report:

    measure.py     the machine of a run, CPU time and memory of a process, progress
    programs.py    programs that a bench starts, servers of pages, a client
    report.py      limits, tables, the Markdown page

Each bench is a module with what it measures, its limits and its page:

    agent.py       the agent compared with nvitop-exporter, with its lower bound, and under endurance
      exporters.py   both exporters: installed, started, scraped
      nodes.py       the node both watch: live processes, fake driver, kubelet and API server
      compare.py     both on one node, measured alternately
      endurance.py   many scrapes while pods come and go: does memory grow?
      cycles.py      the agent's cycles without a pause, in a process of its own
      floor.py       the NVML calls of one collection alone, as a lower bound of its CPU
    analyzer.py    a cycle of the analyzer compared with curl and gpu-oour's queries, on a real Prometheus
      fleet_data.py  the simulated fleet, as blocks for Prometheus
      ways.py        curl with the recorded requests of a cycle, gpu-oour's queries, the analyzer
      served.py      `gpusteward serve` as a process: memory and response times
    sharded.py     a cycle over several engines
    scrape.py      without an engine, over many nodes (scrape_nodes.py)
    rehearsal.py   a simulated cluster, a Prometheus that scrapes it and an analyzer on top, for half an hour
      rehearsal_nodes.py, rehearsal_truth.py, rehearsal_report.py   its nodes, the comparison with their truth, the page
    ledger.py, replay.py, reclaim.py, demo.py, web.py   cost of the ledger, of replay, of reclaim; the demo; the web UI
    judge_truth.py the judge against the truth of simulated workloads, and its cost at 50,000 GPUs
    scenes.py      41 kinds of workload with a known truth (tests/analyzer/judge/scenes.py), through three exporters
    useful.py      work, idleness, stalls, artificial load (tests/analyzer/judge/useful_scenes.py): Prometheus, scraping
    sites.py       foreign sites (tests/analyzer/sites) on a real Prometheus: right, or said what is wrong
    chaos.py       reclaim under faults (tests/analyzer/reclaim/chaos)
    attacks.py     the attacks of tests/attacks on a running analyzer and agent: time, memory, the slowest /livez

Uses the fakes of the tests; what is simulated stands there, where smaller cuts of it run. Nothing in src/ imports it.
Traffic stays on the loopback.
"""
