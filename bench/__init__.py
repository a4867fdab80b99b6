"""What is claimed, measured: `make bench` writes bench/results/.

    agent.py       the story of one run: the agent beside nvitop-exporter, then against its own floor
    installs.py    both sides, each in a virtual environment of its own
    nodes.py       the node that both of them watch: live processes, fake driver, kubelet and API server
    sides.py       a side as a running process
    readings.py    CPU time and memory of another process
    scrapes.py     what a scrape costs the side that answers it
    compare.py     both sides on one node, measured in turns
    endurance.py   many scrapes while pods come and go: does memory grow?
    floor.py       the bare NVML calls of one collection, against all that is done with them
    recorder.py    notes those calls, so that they can be made again
    machines.py    what the numbers were made on
    results.py     all that a run has found, as plain data
    bars.py        what was promised, and whether it holds (pure)
    report.py      results -> the page a person reads (pure)
    judge_truth.py the judge against the truth of simulated workloads, and its cost at 50,000 GPUs
    analyzer.py    a cycle of the analyzer compared with curl and gpu-oour's queries, on a real Prometheus
    fleet_data.py  the simulated fleet, as blocks for Prometheus and import lines for VictoriaMetrics
    request_recorder.py  records the requests of a cycle, so that curl can send the same ones
    compared_ways.py     curl, gpu-oour's queries, the analyzer
    export_path.py       VictoriaMetrics' export API compared with queries
    served.py      `gpusteward serve` as a process: memory and response times
    fleet_results.py, fleet_limits.py, fleet_report.py   their results, the limits, the report
    progress.py    what a run says while it runs

Uses the fakes of the tests; nothing in src/ or tests/ imports it. Traffic stays on the loopback.
"""
