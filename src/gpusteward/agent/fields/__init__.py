"""Which DCGM fields are exported: a built-in list, a CSV file or a ConfigMap.

records.py  CSV text -> records, by the rules of dcgm-exporter (pure)
lists.py    records -> a list of known fields, or an error that names the line (pure)
watch.py    the file or ConfigMap a list comes from, read again when it changes
"""
