"""HTTP server of the agent. It serves ready-made bytes and knows nothing about GPUs, pods or snapshots.

server.py        listening socket, limit of concurrent connections
connection.py    one client connection: reads with a deadline and a size limit
requests.py      request line and headers
handler.py       requests of a connection: access checks, routes, responses
responses.py     response bytes; the JSON shape of errors
"""
