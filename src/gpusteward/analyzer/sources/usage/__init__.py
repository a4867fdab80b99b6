"""What both sources share: from query results to the usage table. Does no I/O.

quantities.py      what is queried, and how a window becomes one number
schemes.py         the exporters: which metrics provide which quantity, and what their series mean
label_mapping.py   label names of a site; selectors.py: conditions on labels
query_results.py   keys of holders and devices, their row numbers, and the results of a cycle as columns over them
presence.py        which holders exist
coverage.py        samples seen / expected
measures.py        measures of each holder
shared_devices.py  rows that share a device: copies of its values, who is alone on it, who else uses it
unknown_rows.py    rows that must not be judged, with the reason
partial_tables.py  the rows of one scheme, and merging them into the usage table
absent_holders.py  holders that have ended, for the ledger, and those that only stopped reporting
inference_servers.py  metrics of inference servers, their values as columns of the rows of their workloads
findings.py        contradictions of the whole site: pods on two nodes, work on devices that nobody holds
"""
