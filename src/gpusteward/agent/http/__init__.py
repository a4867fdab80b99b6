"""HTTP server of the agent. It serves ready-made bytes and knows nothing about GPUs, pods or snapshots.

server.py        listening socket, limit of concurrent connections
connections.py   the open connections, and which of them yields to others
handler.py       requests of a connection: limits, access checks, routes, responses; the JSON shape of errors
"""
