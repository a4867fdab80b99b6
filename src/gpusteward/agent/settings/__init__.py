"""What a person can choose: one table, from which flags, environment, help and the reference page are made.

table.py          every setting of the agent
foreign_flags.py  dcgm-exporter's flags that mean nothing here: accepted, named once
flags.py          the table -> arguments and environment -> values
values.py         text -> value, with complaints that say what is allowed (pure)
"""
