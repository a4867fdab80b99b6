"""Data model and arithmetic: GPUs, processes, containers, allocations, snapshots, usages, verdicts, metric tables.

    node/           a node at one moment: GPUs, processes, containers, signals, the split of a GPU's usage
    kinds.py        the table of the kinds of workloads
    metrics.py, dcgm.py, dcgm_names.py  the tables of exported metrics and of DCGM fields
    exposition.py   metric families -> lines
    usages.py       the usage of an allocation over a window
    verdicts.py     what is said about it; idle_spells.py: what ends an idle spell
    messages.py     texts in two languages; gpu_counts.py: numbers of GPUs in them
    settings.py     what both programs share of settings; did_you_mean.py: the nearest word, for errors
    api_rows.py     the rows of /api/v1, as the analyzer sends and the command line reads them
    namespaces.py   which namespaces a person may see
    errors.py       the error tree

Pure: nothing here reads a clock, a file or a socket, and only the standard library is imported.
"""
