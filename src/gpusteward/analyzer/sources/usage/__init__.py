"""What both sources share: from query results to the usage table. Does no I/O.

quantities.py         what is queried, and how a window becomes one number
metric_schemes.py     metric names and units of each exporter
label_mapping.py      label names of a site; selectors.py: conditions on labels
row_index.py          keys and details of holders and devices, and their row numbers
query_results.py      results of a cycle as columns over row numbers
presence.py           which holders exist
coverage.py           samples seen / expected
measures.py           measures of each holder
shared_devices.py     rows that share a device: copies of its values, and who is alone on it
outside_use.py        use of a device by somebody who does not hold it
unheld_work.py        work on devices that nobody holds
unknown_rows.py       rows that must not be judged, with the reason
pods_on_two_nodes.py  pods of the same name on two nodes: clusters without a name
ended_holders.py      holders that ended within the window, for the ledger
partial_tables.py     the rows of one scheme, and merging them into the usage table
stale_allocations.py  allocations that stopped reporting, from cycle to cycle
"""
