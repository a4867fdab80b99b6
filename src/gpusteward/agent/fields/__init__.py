"""The list of DCGM fields to export: built in, from a CSV file, or from a ConfigMap.

field_list.py  CSV text -> list of known fields, or an error that names the line (pure)
reloading.py   reads the file or ConfigMap and reloads it when it changes
"""
