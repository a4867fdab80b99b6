"""The settings of the agent: one table, from which flags, environment variables, help and the reference page are made.

table.py          every setting of the agent
foreign_flags.py  dcgm-exporter's flags that mean nothing here: accepted and logged once
config_file.py    dcgm-exporter's YAML configuration file
flags.py          the table -> arguments and environment -> values
values.py         text -> value, with errors that name the expected format (pure)
"""
