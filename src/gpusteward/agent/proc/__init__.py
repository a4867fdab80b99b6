"""Identity of processes from /proc.

process_table.py  pid -> name, user, pod uid, container id; read once per process
cgroups.py        text of a cgroup file -> pod uid, container id (pure, never raises)
"""
