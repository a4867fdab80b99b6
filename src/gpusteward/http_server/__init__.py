"""What the HTTP servers of agent and analyzer share. Neither server is here.

web_config.py    web config file of the Prometheus exporter-toolkit, reloaded when it changes
yaml_section.py  typed access to the YAML of that file, with errors that name the key
tls.py           its `tls_server_config` -> an ssl context
access.py        basic authentication and rate limit
negotiation.py   `Accept` and `Accept-Encoding` -> format and encoding of the response
limits.py        how long a header may be; how much of a response the kernel takes before the client has read it
gzip_body.py     large bodies, compressed once and sent with a different end each time
local_clients.py whether a request comes from this machine
"""
