"""What /proc knows of a process.

table.py     pid -> name and identity, looked up once in the life of a process
cgroups.py   the text of a cgroup file -> pod uid, container id (pure, never raises)
"""
