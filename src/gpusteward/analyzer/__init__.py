"""What the cluster means: the usage of every GPU is read, judged, explained, and served.

    app.py        builds every part once
    cycle.py      read -> judge -> explain -> publish: the whole story on one page
    settings/     gathers the settings that each room declares
    watched.py    a text file that is looked at again while the program runs
    tables.py     the cluster in columns: usage and verdicts
    exports.py, holder_lines.py    a result as series: of the cluster as a whole, and of each allocation
    read/         usage from Prometheus-compatible engines; owners from Kubernetes
    judge/        pure: score, signature, workload verdict; one rule a file
    explain/      second opinion of a language model; plain-rules text without one
    api/          HTTP in and out, one file a noun, no thinking

Never imports the agent: they meet in core. Nothing here writes to the cluster.
"""
