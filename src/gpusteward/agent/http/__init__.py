"""HTTP server of the agent. It serves ready-made bytes and knows nothing about GPUs, pods or snapshots.

server.py        listening socket, limit of concurrent connections
connection.py    one client connection: reads with a deadline and a size limit
handler.py       requests of a connection: access checks, routes, responses
responses.py     response bytes; the JSON shape of errors
web_config.py    web config file of the Prometheus exporter-toolkit, reloaded when it changes
yaml_section.py  typed access to the YAML of that file, with errors that name the key
tls.py           its `tls_server_config` -> an ssl context
access.py        basic authentication and rate limit
"""
