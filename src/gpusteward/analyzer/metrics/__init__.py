"""The analyzer's `/metrics` page: the last result and the analyzer's own health as metric families. No HTTP.

analyzer_metrics.py    every metric with its labels and help
page.py                the page of a result, compressed, in both formats
allocation_samples.py  one sample line per allocation and metric; rendered in batches
result_metrics.py      families of the cluster as a whole
cost_metrics.py        families on waste: costs of namespaces, idle GPUs of workloads
health_metrics.py      families of the analyzer itself: cycles, queries, model calls, ledger, deliveries
"""
