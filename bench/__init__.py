"""Benchmarks: `make bench` writes bench/results/.

    agent.py       one run: the agent compared with nvitop-exporter, then with its own lower bound
    installs.py    installs both exporters, each into its own virtual environment
    nodes.py       the node both exporters watch: live processes, fake driver, kubelet and API server
    sides.py       an exporter as a running process
    readings.py    CPU time and memory of another process
    scrapes.py     CPU and time of a scrape
    compare.py     both exporters on one node, measured alternately
    endurance.py   many scrapes while pods come and go: does memory grow?
    floor.py       the NVML calls of one collection alone, as a lower bound of its CPU
    recorder.py    records those calls so that they can be repeated
    machines.py    the machine of a run
    results.py     the results of a run as plain data
    bars.py        the limits and whether they are met (pure)
    report.py      results -> Markdown report (pure)
    sites.py       foreign monitoring sites on a real Prometheus: right, or said what is wrong
    site_data.py, site_variants.py   the simulated site and what is stored of it; the variants
    scenes.py      41 kinds of workload with a known truth, seen through the pages of three exporters
    scene_rows.py  one of them: its truth, and the pages of its exporters at each scrape
    judge_truth.py the judge against the truth of simulated workloads, and its cost at 50,000 GPUs
    analyzer.py    a cycle of the analyzer compared with curl and gpu-oour's queries, on a real Prometheus
    fleet_data.py  the simulated fleet, as blocks for Prometheus
    request_recorder.py  records the requests of a cycle, so that curl can send the same ones
    compared_ways.py     curl, gpu-oour's queries, the analyzer
    served.py      `gpusteward serve` as a process: memory and response times
    fleet_results.py, fleet_limits.py, fleet_report.py   their results, the limits, the report
    rehearsal.py   a simulated cluster, a Prometheus that scrapes it and an analyzer on top, for half an hour
    rehearsal_nodes.py, rehearsal_truth.py, rehearsal_report.py   its nodes, the comparison with their truth, the report
    attacks.py     the attacks of tests/attacks on a running analyzer and agent: time, memory, the slowest /livez
    progress.py    progress messages

Uses the fakes of the tests. Nothing in src/ imports it, and of the tests only the smaller cuts of scenes.py and
sites.py. Traffic stays on the loopback.
"""
